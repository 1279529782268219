package ingest

import "sluice/reading"

// AlarmRule says which readings are urgent. A rule with none of Above, Below
// and Equals makes every reading of its devices and names an alarm; with
// several, one that holds is enough.
type AlarmRule struct {
	Device string // a pattern with "*"; empty for every device
	Name   string // a pattern with "*"; empty for every name
	Above  string // a number: the reading is greater
	Below  string // a number: the reading is less
	Equals string // a number, "true", "false" or a text: the reading equals it
}

// alarm is an AlarmRule made ready.
type alarm struct {
	device, name string
	above, below *decimal
	equals       string
	equalsNumber *decimal
}

// newAlarm makes r ready. It tells fault what is wrong with it; then the alarm is
// not to be used.
func newAlarm(r AlarmRule, fault func(field, format string, args ...any)) alarm {
	a := alarm{device: r.Device, name: r.Name, equals: r.Equals}
	for _, f := range []struct {
		name, literal string
		to            **decimal
	}{{"above", r.Above, &a.above}, {"below", r.Below, &a.below}} {
		if f.literal == "" {
			continue
		}
		if !reading.IsNumber(f.literal) {
			fault(f.name, "%q is not a number: write it as 23.5", f.literal)
			continue
		}
		d := parseDecimal(f.literal)
		*f.to = &d
	}
	if reading.IsNumber(r.Equals) {
		d := parseDecimal(r.Equals)
		a.equalsNumber = &d
	}
	return a
}

// matches reports whether r is what the rule calls urgent. A number that is
// known to be no measurement is never above or below anything.
func (a *alarm) matches(r *reading.Reading) bool {
	if !glob(a.name, r.Name) || !glob(a.device, r.Device) {
		return false
	}
	if a.above == nil && a.below == nil && a.equals == "" {
		return true
	}
	switch r.Value.Kind() {
	case reading.KindNumber:
		if r.Flags&reading.FlagInvalid != 0 {
			return false
		}
		d := parseDecimal(r.Value.Raw())
		return a.above != nil && d.compare(*a.above) > 0 ||
			a.below != nil && d.compare(*a.below) < 0 ||
			a.equalsNumber != nil && d.compare(*a.equalsNumber) == 0
	case reading.KindBool:
		return a.equals == "true" && r.Value.IsTrue() || a.equals == "false" && !r.Value.IsTrue()
	case reading.KindText:
		return a.equals != "" && a.equals == r.Value.Raw()
	}
	return false
}
