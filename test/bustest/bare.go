package bustest

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// BareServers starts n servers with JetStream that form a cluster, and nothing else, to compare with.
func BareServers(t testing.TB, n int) (list []*server.Server) {
	t.Helper()
	ports := []string{}
	for i := range n {
		o := &server.Options{ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()}
		o.Cluster = server.ClusterOpts{Name: "bare", Host: "127.0.0.1", Port: -1}
		for _, port := range ports {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: port})
		}
		if len(o.Routes) == 0 {
			o.Routes = []*url.URL{{Scheme: "nats-route", Host: "127.0.0.1:1"}}
		}
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		Until(t, "it listens", func() bool { return s.ClusterAddr() != nil })
		ports = append(ports, s.ClusterAddr().String())
		list = append(list, s)
	}
	return list
}
