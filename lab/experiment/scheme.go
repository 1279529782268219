package experiment

import "sluice/lab/flow"

// scheme is one way to carry a stream.
type scheme struct {
	name      string
	transport flow.Transport // of the kernel; zero for the product
	uplink    string         // of the product: TOML of its table uplink
	bare      bool           // and whether it is to go without tunnels
}

// The schemes that the experiments compare.
const (
	// The product with the papers' settings, on SCTP alone, is MS-SCTP ([MS]
	// Algorithm 1); with the protocol switch it is TCP-SCTP ([MS] Algorithm 3). Both
	// go without tunnels, as the papers do.
	schemeMS      = "ms-sctp"
	schemeTCPSCTP = "tcp-sctp"
	schemeProduct = "product"
)

func kernelScheme(t flow.Transport) scheme { return scheme{name: t.String(), transport: t} }

func tcpScheme(congestion string, n int) scheme {
	return kernelScheme(flow.Transport{Protocol: flow.TCP, Congestion: congestion, Connections: n})
}

func sctpScheme(tuned bool, n int) scheme {
	return kernelScheme(flow.Transport{Protocol: flow.SCTP, Tuned: tuned, Connections: n})
}

func mptcpScheme() scheme {
	return kernelScheme(flow.Transport{Protocol: flow.MPTCP, Connections: 1})
}

// products are the three settings of the real programs.
func products() []scheme {
	return []scheme{
		{name: schemeMS, uplink: "carrier = \"sctp\"\nprofile = \"paper\"\nunderlay = \"bare\"\n", bare: true},
		{name: schemeTCPSCTP, uplink: "carrier = \"auto\"\nprofile = \"paper\"\nunderlay = \"bare\"\n", bare: true},
		{name: schemeProduct, uplink: "carrier = \"auto\"\nprofile = \"default\"\n"},
	}
}

func (s scheme) isProduct() bool { return s.uplink != "" }

// overhead is what TLS and the session leave of a link to the product's readings;
// the kernel's transports are measured without.
const overhead = 0.95
