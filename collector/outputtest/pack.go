package outputtest

import (
	"testing"

	"sluice/collector"
	"sluice/collector/pack"
	"sluice/reading/senml"
)

// Delivery decodes a whole pack as a consumer would.
func Delivery(t *testing.T, p pack.Pack) collector.Delivery {
	t.Helper()
	d := collector.Delivery{First: p.First, Count: int(p.Last - p.First + 1)}
	if p.Unreadable {
		d.Unreadable, d.Reason = p.Body, p.Reason
		return d
	}
	rs, err := senml.DecodeJSON(p.Body, senml.Options{Exact: true})
	if err != nil {
		t.Fatalf("readings %d to %d: %v", p.First, p.Last, err)
	}
	if len(rs) != d.Count {
		t.Fatalf("readings %d to %d: got %d in the pack", p.First, p.Last, len(rs))
	}
	d.Readings = rs
	return d
}
