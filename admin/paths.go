package admin

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WritePaths writes every path of the uplink for people to read.
func WritePaths(w io.Writer, s *Status) error {
	u := &s.Uplink
	if len(u.Paths) == 0 {
		_, err := io.WriteString(w, noPaths(u))
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PATH\tSTATE\tLOSS\tMOST\tSCORE\tROUND TRIP\tSENT\tRECEIVED\tSINCE\tWHY")
	for i := range u.Paths {
		p := &u.Paths[i]
		since := ""
		if !p.Since.IsZero() {
			since = short(s.Time.Sub(p.Since))
		}
		fmt.Fprintf(tw, "%s\t%s\t%.1f %%\t%.1f %%\t%.1f\t%s\t%s\t%s\t%s\t%s\n", printable(p.Name), p.state(), p.LossLast, p.LossMax, p.Score,
			short(seconds(p.RTTSeconds)), size(int64(p.SentBytes)), size(int64(p.RecvBytes)), since, printable(p.Reason))
	}
	return tw.Flush()
}

// WriteSwitches writes the changes of path and protocol, the last one last.
func WriteSwitches(w io.Writer, s *Status) error {
	u := &s.Uplink
	if len(u.Paths) == 0 {
		_, err := io.WriteString(w, noPaths(u))
		return err
	}
	if len(u.Switches) == 0 {
		_, err := fmt.Fprintf(w, "no switch since %s\n", s.Started.Format(time.DateTime))
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "WHEN\tFROM\tSCORE\tTO\tSCORE\tWHY")
	for _, c := range u.Switches {
		fmt.Fprintf(tw, "%s\t%s\t%.1f\t%s\t%.1f\t%s\n", c.At.Local().Format(time.DateTime), printable(c.From), c.FromScore, printable(c.To), c.ToScore, printable(c.Reason))
	}
	return tw.Flush()
}

func noPaths(u *Uplink) string {
	if !u.Configured {
		return "the uplink is off: name a collector under [uplink]\n"
	}
	if u.Choice != "" {
		return printable(u.Choice) + "\n"
	}
	return "no paths are configured: the gateway goes wherever the system's route leads; add [[uplink.path]] to choose\n"
}

// state is a path's state in a few words.
func (p *Path) state() string {
	switch {
	case !p.Up:
		return "down"
	case !p.Usable && p.Standing != "":
		return printable(p.Standing)
	case !p.Usable:
		return "dead"
	case p.Primary:
		return "primary"
	case p.Standing != "":
		return printable(p.Standing)
	}
	return "ready"
}

// summary is a path in one line of the status.
func (p *Path) summary() string {
	if !p.Usable {
		return fmt.Sprintf("%s %s%s", p.Name, p.state(), because(p.Reason))
	}
	return fmt.Sprintf("%s %s, loss %.1f %%, round trip %s", p.Name, p.state(), p.LossLast, short(seconds(p.RTTSeconds)))
}
