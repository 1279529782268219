package store

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/reading"
)

// sensor is the six readings of one message of a device.
func sensor(device, n int) []reading.Reading {
	wall := int64(1_700_000_000_000_000_000) + int64(n)*1e8
	name := fmt.Sprint("zigbee/room-", device)
	rs := make([]reading.Reading, 0, 6)
	for _, v := range []struct {
		name, unit string
		value      reading.Value
	}{
		{"temperature", "Cel", reading.Int(int64(20 + n%5))},
		{"humidity", "%RH", reading.Int(int64(40 + n%7))},
		{"pressure", "hPa", reading.Int(int64(990 + n%11))},
		{"battery", "%EL", reading.Int(97)},
		{"linkquality", "", reading.Int(int64(100 + n%50))},
		{"occupancy", "", reading.Bool(n%3 == 0)},
	} {
		rs = append(rs, reading.Reading{Device: name, Name: v.name, Unit: v.unit, Value: v.value, Time: reading.Time{Wall: wall}})
	}
	return rs
}

// BenchmarkAppend is eight senders with a hundred batches of six readings on
// their way each, with receipts as MQTT clients have them.
func BenchmarkAppend(b *testing.B) {
	o := options(b)
	o.CommitInterval = DefaultCommitInterval
	o.Quota = 4 << 30
	s := open(b, o)
	const senders, window = 8, 100
	var batches [senders][][]reading.Reading
	for i := range batches {
		for n := range 256 {
			batches[i] = append(batches[i], sensor(i, n))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			free := make(chan struct{}, window)
			done := func(err error) {
				if err != nil {
					b.Error(err)
				}
				<-free
			}
			receipt := reading.Receipt{Sender: fmt.Sprint("mqtt:", i), Keep: window}
			for n := i; n < b.N; n += senders {
				free <- struct{}{}
				receipt.ID = uint64(n)
				if err := s.Append(b.Context(), reading.Batch{Lane: reading.Live, Readings: batches[i][n%256], Receipt: receipt}, done); err != nil {
					b.Error(err)
				}
			}
			for range window {
				free <- struct{}{}
			}
		})
	}
	group.Wait()
	st := s.Stats()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
	b.ReportMetric(float64(st.Written)/float64(st.Appended), "written-B/reading")
	b.ReportMetric(float64(st.Appended)/float64(st.Commits), "readings/commit")
	b.ReportMetric(st.CommitMax.Seconds()*1e3, "commit-max-ms")
}

// TestWear publishes the bytes written for a reading at ten batches of six
// readings a second, with and without the uplink (F37). The times are a bubble's.
func TestWear(t *testing.T) {
	for _, test := range []struct {
		interval   time.Duration
		delivering bool
		most       float64 // bytes a reading
	}{
		{100 * time.Millisecond, true, 3000},
		{DefaultCommitInterval, true, 1500},
		{time.Second, true, 320},
		{5 * time.Second, true, 60},
		{time.Second, false, 500},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := options(t)
			o.CommitInterval = test.interval
			o.Delivering = func() bool { return test.delivering }
			s := open(t, o)
			before := s.Stats().Written
			const seconds = 30
			for n := range 10 * seconds {
				b := reading.Batch{Lane: reading.Live, Readings: sensor(n%10, n)}
				b.Receipt = reading.Receipt{Sender: "mqtt:bridge", ID: uint64(n), Keep: 100}
				if err := s.Append(t.Context(), b, func(error) {}); err != nil {
					t.Fatal(err)
				}
				<-time.After(100 * time.Millisecond)
				if test.delivering && n%5 == 0 {
					s.Ack(reading.Live, s.Stats().Lanes[reading.Live].Next-1)
				}
			}
			st := s.Stats()
			got := float64(st.Written-before) / float64(st.Appended)
			t.Logf("interval %v, delivering %v: %.0f bytes a reading, %d commits", test.interval, test.delivering, got, st.Commits)
			if got > test.most {
				t.Errorf("interval %v, delivering %v: %.0f bytes a reading, want at most %.0f", test.interval, test.delivering, got, test.most)
			}
			s.Close()
		})
	}
}
