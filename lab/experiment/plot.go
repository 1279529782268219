package experiment

import (
	"bytes"
	"slices"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plot is throughput over time, one curve a scheme.
type plot struct {
	title  string
	curves []curve
	file   string
}

type curve struct {
	name string
	at   []float64 // seconds
	rate []float64 // KB/s
}

// seriesPlot shows the first run of each scheme at the first of the values that
// has any, in slots of half a second.
func seriesPlot(title string, records []Record, values ...float64) plot {
	p := plot{title: title}
	s := selection(records)
	for _, at := range values {
		if !slices.Contains(s.rates(), at) {
			continue
		}
		p.title += ", at " + number(at)
		for _, l := range s.labels() {
			i := slices.IndexFunc(s, func(r Record) bool { return r.label() == l && r.At == at && len(r.Rates) > 0 })
			if i >= 0 {
				p.curves = append(p.curves, s[i].curve(l))
			}
		}
		break
	}
	return p
}

// curveSlot is the width of a curve's points in seconds.
const curveSlot = 0.5

func (r Record) curve(name string) curve {
	c := curve{name: name}
	n := max(1, int(curveSlot/r.Slot+0.5))
	for i := 0; i+n <= len(r.Rates); i += n {
		sum := 0.0
		for _, rate := range r.Rates[i : i+n] {
			sum += rate
		}
		c.at = append(c.at, (float64(i)+float64(n)/2)*r.Slot)
		c.rate = append(c.rate, sum/float64(n))
	}
	return c
}

func (p plot) svg() ([]byte, error) {
	g := gonum.New()
	g.Title.Text = p.title
	g.X.Label.Text = "seconds"
	g.Y.Label.Text = "KB/s"
	g.Y.Min = 0
	g.Legend.Top = true
	g.Add(plotter.NewGrid())
	for i, c := range p.curves {
		points := make(plotter.XYs, len(c.at))
		for j := range points {
			points[j] = plotter.XY{X: c.at[j], Y: c.rate[j]}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color = plotutil.Color(i)
		line.Dashes = plotutil.Dashes(i / 7)
		line.Width = vg.Points(1.2)
		g.Add(line)
		g.Legend.Add(c.name, line)
	}
	image := vgsvg.New(24*vg.Centimeter, 12*vg.Centimeter)
	g.Draw(draw.New(image))
	var b bytes.Buffer
	_, err := image.WriteTo(&b)
	return b.Bytes(), err
}
