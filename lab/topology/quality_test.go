package topology

import (
	"math"
	"testing"
)

func TestBurstMean(t *testing.T) {
	tests := []struct {
		burst Burst
		want  float64
	}{
		{Burst{}, 0},
		{Burst{Good: 0.01}, 0.01},
		{Burst{Enter: 0.1, Leave: 0.1, Bad: 1}, 0.5},
		{Burst{Enter: 0.1, Leave: 0.3, Bad: 0.5, Good: 0.1}, 0.2},
		{BurstsOf(0.2, 8), 0.2},
		{BurstsOf(0.05, 2), 0.05},
	}
	for _, test := range tests {
		if got := test.burst.Mean(); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("mean of %+v: got %v, want %v", test.burst, got, test.want)
		}
	}
	if got := 1 / BurstsOf(0.2, 8).Leave; got != 8 {
		t.Errorf("mean length: got %v, want 8", got)
	}
}
