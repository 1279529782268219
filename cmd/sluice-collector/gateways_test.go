package main

import (
	"fmt"
	"net/netip"
	"testing"
)

// A gateway that knows the collector's second port uses it in its tunnels as well.
func TestEveryPortIsReachedInTunnels(t *testing.T) {
	public, err := resolve([]string{"192.0.2.1:7600", "192.0.2.2:7600", "192.0.2.1:443"})
	if err != nil {
		t.Fatal(err)
	}
	got := within([]netip.Addr{netip.MustParseAddr("10.213.0.1"), netip.MustParseAddr("10.213.64.1")}, public)
	if want := "[10.213.0.1:7600 10.213.64.1:7600 10.213.0.1:443 10.213.64.1:443]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
