package jetstream

import (
	"fmt"
	"testing"

	"sluice/collector"
	"sluice/collector/outputtest"
)

// Readings a second through one stream, rendered, published and synced, by the
// size of a write.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 4096, 16384} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := open(b, b.TempDir())
			d := outputtest.Readings(1, n)
			after := uint64(0)
			for b.Loop() {
				d.First = after + 1
				if err := o.Write(b.Context(), live, after, []collector.Delivery{d}); err != nil {
					b.Fatal(err)
				}
				after = d.Last()
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "readings/s")
		})
	}
}
