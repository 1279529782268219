package topology

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrNoNetem is returned when a quality was asked for and the kernel has no
// netem.
var ErrNoNetem = errors.New("the kernel has no netem (module sch_netem); run it in the lab's guest")

// Attributes of netem that the netlink module lacks: linux/pkt_sched.h.
const (
	netemLatency64 = 10
	netemJitter64  = 11
	netemGilbert   = 2 // NETEM_LOSS_GE
)

// Set gives the direction from this end to its peer a quality, from now on; what
// is under way stays in the queue.
//
// The message is made here because the netlink module knows no bursts of loss.
func (e *End) Set(q Quality) error {
	if err := q.check(); err != nil {
		return fmt.Errorf("set the quality of %s: %w", e, err)
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	request.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(e.index),
		// A handle of its own makes a later change one of the same queue.
		Handle: 0x10000, Parent: netlink.HANDLE_ROOT,
	})
	request.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("netem")))
	request.AddData(q.attribute())
	// The message leaves by a socket inside the host.
	err := e.Host.Do(func() error {
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		err = ErrNoNetem
		fallthrough
	case err != nil:
		return fmt.Errorf("set the quality of %s: %w", e, err)
	}
	return nil
}

func (q Quality) check() error {
	for _, p := range []float64{q.Loss, q.Burst.Enter, q.Burst.Leave, q.Burst.Bad, q.Burst.Good} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("probability %v is not between 0 and 1", p)
		}
	}
	if q.Loss > 0 && q.Burst != (Burst{}) {
		return errors.New("loss is either independent or in bursts")
	}
	if q.Rate < 0 || q.Rate/8 > math.MaxUint32 {
		return fmt.Errorf("rate %d bit/s is not between 0 and 34 Gbit/s", q.Rate)
	}
	if q.Delay < 0 || q.Jitter < 0 || q.Jitter > q.Delay || q.Limit < 0 {
		return fmt.Errorf("delay %v, jitter %v and limit %d must not be negative, nor the jitter above the delay", q.Delay, q.Jitter, q.Limit)
	}
	return nil
}

// attribute is struct tc_netem_qopt and the attributes behind it. All that can
// change is always there: netem keeps what a change does not mention.
func (q Quality) attribute() *nl.RtAttr {
	limit := q.Limit
	if limit == 0 {
		limit = 1000
	}
	order := binary.NativeEndian
	head := make([]byte, 24) // latency, limit, loss, gap, duplicate, jitter
	order.PutUint32(head[4:], uint32(limit))
	order.PutUint32(head[8:], probability(q.Loss))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, head)
	options.AddRtAttr(netemLatency64, order.AppendUint64(nil, uint64(q.Delay.Nanoseconds())))
	options.AddRtAttr(netemJitter64, order.AppendUint64(nil, uint64(q.Jitter.Nanoseconds())))
	rate := make([]byte, 16) // rate in bytes/s, packet overhead, cell size, cell overhead
	order.PutUint32(rate, uint32(q.Rate/8))
	options.AddRtAttr(nl.TCA_NETEM_RATE, rate)
	if b := q.Burst; b != (Burst{}) {
		model := make([]byte, 0, 16)
		for _, p := range []float64{b.Enter, b.Leave, 1 - b.Bad, b.Good} {
			model = order.AppendUint32(model, probability(p))
		}
		options.AddRtAttr(nl.TCA_NETEM_LOSS|unix.NLA_F_NESTED, nil).AddRtAttr(netemGilbert, model)
	}
	return options
}

// probability is p as the kernel's random numbers are compared with it.
func probability(p float64) uint32 { return uint32(math.Round(p * math.MaxUint32)) }
