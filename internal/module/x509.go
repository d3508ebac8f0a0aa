package module

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // a fingerprint that people compare, not a proof
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
)

// x509Module reads certificates.
var x509Module = &function.Module{
	Name: "x509",
	Doc:  "Functions that read certificates, from a file or from the text itself. They make none.",
	Functions: []function.Function{
		{
			Name: "expired", Doc: "Return whether a certificate has expired, its path and common name.", Example: `salt '*' x509.expired /etc/ssl/certs/mycert.crt`,
			Params: []function.Param{certificateParam}, Run: func(_ context.Context, c *function.Call) (any, error) { return expiry(c, 0, "expired") },
		},
		{
			Name: "get_pem_entries", Doc: "Return the first block of PEM of each file that matches a glob, by the path.", Example: `salt '*' x509.get_pem_entries '/etc/pki/*.crt'`,
			Params: []function.Param{{Name: "glob_path", Kind: function.Path, Required: true}}, Run: pemEntries,
		},
		{
			Name: "read_certificate", Doc: "Return what a certificate says: subject, issuer, validity, serial number, names, key and fingerprints.", Example: `salt '*' x509.read_certificate /etc/pki/mycert.crt`,
			Params: []function.Param{certificateParam},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				cert, err := certificateOf(c)
				if err != nil {
					return nil, err
				}
				return certificateFacts(cert), nil
			},
		},
		{
			Name: "read_certificates", Doc: "Return what the certificates of the files that match a glob say, by the path. Files without a certificate are left out.", Example: `salt '*' x509.read_certificates '/etc/pki/*.crt'`,
			Params: []function.Param{{Name: "glob_path", Kind: function.Path, Required: true}}, Run: readCertificates,
		},
		{
			Name: "will_expire", Doc: "Return whether a certificate expires within so many days.", Example: `salt '*' x509.will_expire /etc/pki/mycert.crt days=30`,
			Params: []function.Param{certificateParam, {Name: "days", Kind: function.Int, Required: true}},
			Run: func(_ context.Context, c *function.Call) (any, error) {
				m, err := expiry(c, c.Int("days"), "will_expire")
				if err == nil {
					m["check_days"] = int64(c.Int("days"))
				}
				return m, err
			},
		},
	},
}

var certificateParam = function.Param{Name: "certificate", Kind: function.String, Required: true}

// certificateOf reads the argument: a path, or the text of a certificate.
func certificateOf(c *function.Call) (*x509.Certificate, error) {
	text := c.String("certificate")
	if !strings.Contains(text, "-----BEGIN") {
		var err error
		if text, err = readText(text); err != nil {
			return nil, err
		}
	}
	return parseCertificate(text)
}

func parseCertificate(text string) (*x509.Certificate, error) {
	der := []byte(text)
	for rest := der; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			der = block.Bytes
			break
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("there is no certificate: %w", err)
	}
	return cert, nil
}

// certificateFacts returns Salt's fields, and the validity as sortable text.
func certificateFacts(cert *x509.Certificate) map[string]any {
	const layout = "2006-01-02 15:04:05"
	kind, bits := keySize(cert)
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, cert.EmailAddresses...)
	one, two := sha1.Sum(cert.Raw), sha256.Sum256(cert.Raw) //nolint:gosec
	return map[string]any{
		"Version": int64(cert.Version), "Serial Number": colons(cert.SerialNumber.Bytes()),
		"Subject": nameFacts(cert.Subject.String(), cert.Subject.CommonName), "Issuer": nameFacts(cert.Issuer.String(), cert.Issuer.CommonName),
		"Not Before": cert.NotBefore.UTC().Format(layout), "Not After": cert.NotAfter.UTC().Format(layout),
		"Key Type": kind, "Key Size": bits, "Is CA": cert.IsCA, "Names": names, "Signature Algorithm": cert.SignatureAlgorithm.String(),
		"SHA1 Finger Print": colons(one[:]), "SHA-256 Finger Print": colons(two[:]),
	}
}

func nameFacts(whole, common string) map[string]any {
	return map[string]any{"CN": common, "name": whole}
}

// keySize returns the type of the key and its size in bits.
func keySize(cert *x509.Certificate) (string, int64) {
	switch k := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		return "rsa", int64(k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ec", int64(k.Curve.Params().BitSize)
	case ed25519.PublicKey:
		return "ed25519", int64(8 * len(k))
	}
	return "unknown", 0
}

// colons writes bytes as openssl does.
func colons(b []byte) string {
	parts := make([]string, len(b))
	for i := range b {
		parts[i] = strings.ToUpper(hex.EncodeToString(b[i : i+1]))
	}
	return strings.Join(parts, ":")
}

func expiry(c *function.Call, days int, key string) (map[string]any, error) {
	cert, err := certificateOf(c)
	if err != nil {
		return nil, err
	}
	path := c.String("certificate")
	if strings.Contains(path, "-----BEGIN") {
		path = "" // the text itself is not a path
	}
	return map[string]any{"path": path, "cn": cert.Subject.CommonName, key: time.Now().AddDate(0, 0, days).After(cert.NotAfter)}, nil
}

// maxCertificates limits how many files a glob may match.
const maxCertificates = 1000

// eachPEM calls f for the files of a glob.
func eachPEM(c *function.Call, f func(path, text string)) error {
	paths, err := filepath.Glob(c.String("glob_path"))
	if err != nil {
		return function.Invalid("%q is not a glob", c.String("glob_path"))
	}
	if len(paths) > maxCertificates {
		return function.Invalid("%d files match, %d may", len(paths), maxCertificates)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxKeyFile {
			continue
		}
		if text, err := readText(path); err == nil {
			f(path, text)
		}
	}
	return nil
}

func readCertificates(_ context.Context, c *function.Call) (any, error) {
	all := map[string]any{}
	err := eachPEM(c, func(path, text string) {
		if cert, err := parseCertificate(text); err == nil {
			all[path] = certificateFacts(cert)
		}
	})
	return all, err
}

// pemEntries never shows a private key: the return goes to the master and into its journal.
func pemEntries(_ context.Context, c *function.Call) (any, error) {
	all := map[string]any{}
	err := eachPEM(c, func(path, text string) {
		if block, _ := pem.Decode([]byte(text)); block != nil && !strings.Contains(block.Type, "PRIVATE") {
			all[path] = string(pem.EncodeToMemory(block))
		}
	})
	return all, err
}
