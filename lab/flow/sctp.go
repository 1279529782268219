package flow

import (
	"context"
	"net"

	"sluice/uplink/sctp"
)

func (t Transport) tuning() sctp.Tuning {
	if t.Tuned {
		return sctp.Tuning{}
	}
	return sctp.KernelDefaults()
}

func listenSCTP(o Options) (net.Listener, error) {
	return sctp.ListenRaw(o.Remote, o.tuning())
}

func dialSCTP(ctx context.Context, o Options) (net.Conn, error) {
	return sctp.DialRaw(ctx, sctp.Options{Local: o.Local, Remote: o.Remote, Tuning: o.tuning()})
}

func sctpCounters(c net.Conn) counters {
	a, ok := c.(*sctp.Association)
	if !ok {
		return counters{}
	}
	i := a.Info()
	return counters{sent: i.Sent + i.Resent, resent: i.Resent, rtt: i.RTT}
}
