package reading

import "testing"

func TestIsNumber(t *testing.T) {
	for _, s := range []string{"0", "-0", "10", "1.5", "-1.50", "1e5", "1E+5", "1.25e-07", "9007199254740993"} {
		if !IsNumber(s) {
			t.Errorf("%q is a number", s)
		}
		if v, err := Number(s); err != nil || v.Raw() != s || v.Kind() != KindNumber {
			t.Errorf("Number(%q) = %v, %v", s, v, err)
		}
	}
	for _, s := range []string{"", "-", "+1", "01", "1.", ".5", "1e", "1e+", "NaN", "Infinity", "0x10", " 1", "1 ", "1,5", "١"} {
		if IsNumber(s) {
			t.Errorf("%q is no number", s)
		}
		if _, err := Number(s); err == nil {
			t.Errorf("Number(%q) was accepted", s)
		}
	}
}

func TestValue(t *testing.T) {
	for _, c := range []struct {
		value Value
		kind  Kind
		want  string
	}{
		{Value{}, KindNull, "null"},
		{Bool(true), KindBool, "true"},
		{Bool(false), KindBool, "false"},
		{Int(-32768), KindNumber, "-32768"},
		{Text("ON"), KindText, "ON"},
		{Text("\xff"), KindBytes, "_w"},
		{Bytes([]byte{0xfb, 0xff}), KindBytes, "-_8"},
	} {
		if got := c.value.String(); got != c.want || c.value.Kind() != c.kind {
			t.Errorf("got %s of kind %d, want %s of kind %d", got, c.value.Kind(), c.want, c.kind)
		}
	}
}

func TestLaneAndSegment(t *testing.T) {
	got := []string{Alarm.String(), Live.String(), Backfill.String(), Lane(9).String()}
	want := []string{"alarm", "live", "backfill", "lane(9)"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %s, want %s", got[i], want[i])
		}
	}
	if got := (Segment{First: 7, Count: 3}).Last(); got != 9 {
		t.Errorf("last of 3 from 7 is %d, want 9", got)
	}
}
