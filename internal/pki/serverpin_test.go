package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"
)

// TestRefusedCertificatesAreNewOnce: each of a server and certificate, and of a bounded number.
func TestRefusedCertificatesAreNewOnce(t *testing.T) {
	var r Refused
	pin := func(finger string) error { return fmt.Errorf("%w: it has the fingerprint %s", ErrServerPin, finger) }
	if !r.First("a:1", pin("x")) || r.First("a:1", pin("x")) || !r.First("b:1", pin("x")) || !r.First("a:1", pin("y")) {
		t.Error("it is not each server and certificate once")
	}
	ca := func(text string, raw byte) error {
		return &tls.CertificateVerificationError{UnverifiedCertificates: []*x509.Certificate{{Raw: []byte{raw}}}, Err: errors.New(text)}
	}
	if !r.First("a:1", ca("expired since 1s", 1)) || r.First("a:1", ca("expired since 2s", 1)) || !r.First("a:1", ca("expired since 2s", 2)) {
		t.Error("the certificate does not count, but what is said of it")
	}
	if r.First("a:1", nil) || r.First("a:1", errors.New("connection refused")) || (*Refused)(nil).First("a:1", pin("x")) {
		t.Error("it tells of what is no refused certificate, or to nobody")
	}
	news := 0
	for i := range 2 * maxRefused {
		if r.First("c:1", pin(fmt.Sprint(i))) {
			news++
		}
	}
	if news == 0 || news > maxRefused {
		t.Errorf("%d certificates of one server are reported", news)
	}
}
