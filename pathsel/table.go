package pathsel

import "math"

// The protocols.
const (
	SCTP = "sctp"
	TCP  = "tcp"
)

// Scheme is a way to send: a protocol, how it is set up, and how many carriers
// share the data.
type Scheme struct {
	Protocol string
	Variant  string // "bbr" or "cubic" of TCP, "tuned" or "default" of SCTP
	Carriers int    // at least 1
}

// row is what one scheme carried, payload in KB/s at the loss rates of columns.
type row struct {
	protocol, variant string
	carriers          int
	carried           [columns]float64
}

const (
	columns = 11
	column  = 5.0 // percent of loss from one to the next, beginning at 0
	// capacity is payload in KB/s on the measured link without loss.
	capacity = 959.0
)

// table was measured on Linux 6.1: one path of 8 Mbit/s, a queue of 50 packets, a
// round trip of 4 ms, and random loss on the hop after the bottleneck, so that
// (1-p)*capacity is the bound. Means of three or four runs of eight seconds.
var table = [...]row{
	{TCP, "cubic", 1, [columns]float64{956, 677, 398, 208, 83, 57, 52, 16, 19, 9, 9}},
	{TCP, "bbr", 1, [columns]float64{956, 905, 855, 690, 519, 272, 150, 90, 60, 36, 19}},
	{TCP, "bbr", 4, [columns]float64{956, 907, 859, 790, 715, 516, 404, 248, 204, 101, 79}},
	{SCTP, "default", 1, [columns]float64{959, 344, 193, 60, 43, 23, 14, 8, 6, 2, 3}},
	{SCTP, "tuned", 1, [columns]float64{959, 898, 670, 404, 221, 104, 69, 40, 17, 22, 16}},
	{SCTP, "tuned", 4, [columns]float64{959, 893, 850, 793, 682, 437, 274, 181, 118, 84, 54}},
}

// measured returns the share of what passes the loss that a scheme carries, from
// 0 to 1, between the columns by straight lines and beyond them as in the last.
// Numbers of carriers that were not measured lie between those that were, by the
// logarithm of the number; of a scheme that was measured with one only, each
// further carrier takes the same share of what the others leave, which comes
// near the rows that exist. A variant that is not in the table counts as cubic
// or default.
func measured(s Scheme, percent float64) float64 {
	one, ok := carried(s.Protocol, s.Variant, 1, percent)
	if !ok {
		s.Variant = "default"
		if s.Protocol == TCP {
			s.Variant = "cubic"
		}
		if one, ok = carried(s.Protocol, s.Variant, 1, percent); !ok {
			return 0
		}
	}
	if s.Carriers <= 1 {
		return one
	}
	four, ok := carried(s.Protocol, s.Variant, 4, percent)
	if !ok {
		return 1 - math.Pow(1-one, float64(s.Carriers))
	}
	return one + (four-one)*min(1, math.Log2(float64(s.Carriers))/2)
}

// carried reads one row.
func carried(protocol, variant string, carriers int, percent float64) (share float64, ok bool) {
	for _, r := range table {
		if r.protocol != protocol || r.variant != variant || r.carriers != carriers {
			continue
		}
		of := func(i int) float64 {
			return min(1, r.carried[i]/(capacity*(1-float64(i)*column/100)))
		}
		at := min(max(percent, 0)/column, columns-1)
		i := min(int(at), columns-2)
		return of(i) + (of(i+1)-of(i))*(at-float64(i)), true
	}
	return 0, false
}
