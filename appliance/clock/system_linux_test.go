package clock

import "testing"

func TestBootNumber(t *testing.T) {
	a, err := NewSystem()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewSystem()
	if err != nil {
		t.Fatal(err)
	}
	if a.Boot() != b.Boot() {
		t.Errorf("one boot, two numbers: %d, %d", a.Boot(), b.Boot())
	}
	if x, y := bootNumber("5f2c"), bootNumber("5f2d"); x == y {
		t.Errorf("two boots, one number: %d", x)
	}
}
