package admin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// WriteTable writes the status for people to read, at most 80 columns wide
// unless a name or a reason is long.
func WriteTable(w io.Writer, s *Status) error {
	t := &table{}
	t.health(s)
	t.line("gateway", "%s, sluice %s, up %s", s.Gateway, s.Software, short(seconds(s.UptimeSeconds)))
	t.uplink(s)
	t.store(s)
	t.ingest(s)
	t.devices(s)
	_, err := io.WriteString(w, t.String())
	return err
}

// table is lines of a name and what there is to say of it.
type table struct {
	strings.Builder
}

func (t *table) line(name, format string, args ...any) {
	// What devices and links are called comes from outside; it must not move
	// the cursor.
	fmt.Fprintf(t, "%-12s%s\n", name, printable(fmt.Sprintf(format, args...)))
}

func (t *table) health(s *Status) {
	word := "ok"
	if !s.Health.OK {
		word = "NOT WORKING"
	}
	t.line("health", "%s", word)
	for _, r := range s.Health.Reasons {
		t.line("", "! %s", r)
	}
	for _, r := range s.Health.Warnings {
		t.line("", "- %s", r)
	}
}

func (t *table) uplink(s *Status) {
	u := &s.Uplink
	if !u.Configured {
		t.line("uplink", "off")
		return
	}
	t.line("uplink", "%s%s%s", u.State, since(s.Time, u.Since), because(u.Reason))
	if u.Up {
		via := u.Carrier
		if u.Path != "" {
			via += " over " + u.Path
		}
		t.line("", "%s to %s, round trip %s", via, u.Remote, short(seconds(u.RTTSeconds)))
	}
	if u.Choice != "" {
		next := ""
		if u.NextTry.After(s.Time) {
			next = "; next try of a better one in " + short(u.NextTry.Sub(s.Time))
		}
		t.line("", "%s%s", u.Choice, next)
	}
	for i := range u.Paths {
		t.line("", "path %s", u.Paths[i].summary())
	}
	ack := "never"
	if !u.LastAck.IsZero() {
		ack = short(s.Time.Sub(u.LastAck)) + " ago"
	}
	t.line("", "delivered %s, last acknowledged %s, %s sent, %s received", count(u.Delivered), ack,
		size(int64(u.SentBytes)), size(int64(u.RecvBytes)))
}

func (t *table) store(s *Status) {
	st := &s.Store
	waiting, oldest := st.Backlog()
	if waiting == 0 {
		t.line("backlog", "none")
	} else {
		t.line("backlog", "%s, oldest %s", count(waiting), short(seconds(oldest)))
		for _, l := range st.Lanes {
			if l.Readings > 0 {
				t.line("", "%-9s %s, %s, oldest %s", l.Name, count(l.Readings), size(l.Bytes), short(seconds(l.OldestSeconds)))
			}
		}
	}
	t.line("store", "%s of %s used, %s%s", size(st.UsedBytes), size(st.QuotaBytes), number(st.Commits, "commit"), commits(st))
	if st.Paused != "" {
		t.line("", "PAUSED: %s", st.Paused)
	}
	if st.SetAside != "" {
		t.line("", "damaged file: %s, %s saved out of it", st.SetAside, count(st.Salvaged))
	}
	for _, reason := range slices.Sorted(maps.Keys(st.Removed)) {
		if n := st.Removed[reason]; n > 0 {
			t.line("", "removed %s: %s", count(n), reason)
		}
	}
}

func (t *table) ingest(s *Status) {
	in := &s.Ingest
	t.line("in", "%s, %s, stored %d, duplicates %d", number(in.Messages, "message"), count(in.Readings), s.Store.Appended, s.Store.Duplicates)
	if in.Nulls > 0 || in.Invalid > 0 {
		t.line("", "%s without a value, %d marked as no measurement", count(in.Nulls), in.Invalid)
	}
	if in.Refused > 0 || in.Dropped > 0 {
		t.line("", "%s refused, %d dropped (QoS 0)", number(in.Refused, "message"), in.Dropped)
	}
	if in.Raw > 0 {
		t.line("", "not readable, kept as they came: %s (%s)", number(in.Raw, "payload"), byReason(in.RawByReason))
		const most = 5
		topics := slices.Collect(maps.Keys(in.RawByTopic))
		slices.SortFunc(topics, func(a, b string) int {
			if na, nb := in.RawByTopic[a], in.RawByTopic[b]; na != nb {
				if na > nb {
					return -1
				}
				return 1
			}
			return strings.Compare(a, b)
		})
		for i, topic := range topics {
			if i == most {
				t.line("", "  and %s more", number(uint64(len(topics)-most), "topic"))
				break
			}
			t.line("", "  %d %s", in.RawByTopic[topic], topic)
		}
	}
	for _, src := range in.Sources {
		word := "up"
		if !src.Up {
			word = "DOWN"
		}
		clients := ""
		if src.Clients > 0 {
			clients = ", " + number(uint64(src.Clients), "client")
		}
		refused := ""
		if src.Refused > 0 {
			refused = fmt.Sprintf(", %d refused", src.Refused)
		}
		if src.Undelivered > 0 {
			clients += fmt.Sprintf(", %d not delivered to local subscribers", src.Undelivered)
		}
		t.line("", "%s: %s%s%s, %s%s%s", src.Name, word, since(s.Time, src.Since), because(src.Reason), number(src.Messages, "message"), refused, clients)
	}
}

func (t *table) devices(s *Status) {
	d := &s.Devices
	if d.Online+d.Offline > 0 {
		t.line("devices", "%d online, %d offline", d.Online, d.Offline)
	}
	if len(d.Missing) > 0 {
		t.line("", "offline: %s", strings.Join(d.Missing, ", "))
	}
	for _, b := range d.Bridges {
		word := "online"
		if !b.Online {
			word = "OFFLINE"
		}
		t.line("bridge", "%s %s %s, %s, %s%s", b.Base, word, b.Version, number(uint64(b.Devices), "device"), number(b.Errors, "error"), because(b.LastError))
	}
}

// commits says how long commits take, once there was one.
func commits(st *Store) string {
	if st.Commits == 0 {
		return ""
	}
	return fmt.Sprintf(", last %s, longest %s", short(seconds(st.CommitSeconds)), short(seconds(st.CommitLongestSeconds)))
}

// byReason lists counts as "5 json, 4 utf8".
func byReason(counts map[string]uint64) string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(list, ", ")
}

func since(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + short(now.Sub(t))
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// short shows a time span by its two largest units.
func short(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// size shows a number of bytes.
func size(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f, i := float64(n), 0
	for f >= 1000 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// number shows how many there are of what one of is called.
func number(n uint64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + one + "s"
}

// count shows a number of readings.
func count(n uint64) string { return number(n, "reading") }

func validUTF8(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// printable replaces what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\ufffd'
	}, validUTF8(s))
}
