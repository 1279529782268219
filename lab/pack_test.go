package lab

import (
	"reflect"
	"testing"
)

func TestParsePack(t *testing.T) {
	tests := []struct {
		name string
		pack string
		want []packRecord
	}{
		{"base name and time", `[{"bn":"hall/lamp/","bt":1764542400.5,"n":"color.x","v":21.50},{"n":"state","vs":"ON","t":1.25}]`, []packRecord{
			{"hall/lamp", "color.x", KindNumber, "21.50", "1764542400.5"},
			{"hall/lamp", "state", KindText, "ON", "1764542401.75"},
		}},
		{"exact integer", `[{"bn":"a/","n":"id","v":2882429806056571124}]`, []packRecord{
			{"a", "id", KindNumber, "2882429806056571124", ""},
		}},
		{"kinds", `[{"n":"a/b","vb":true},{"n":"a/c","vd":"AQ"},{"n":"a/d","null":true},{"n":"a/e","vs":"\u00e9\n"}]`, []packRecord{
			{"a", "b", KindBool, "true", ""},
			{"a", "c", KindBytes, "AQ", ""},
			{"a", "d", KindNull, "", ""},
			{"a", "e", KindText, "é\n", ""},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []packRecord
			if err := parsePack([]byte(test.pack), func(r packRecord) { got = append(got, r) }); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func FuzzParsePack(f *testing.F) {
	for _, seed := range []string{
		`[{"bn":"a/","bt":1.5,"n":"x","v":1}]`, `[{"n":"x"}]`, `[]`, `[{`, `{}`, `[{"n":"x","t":1e9,"v":0}]x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, pack []byte) {
		parsePack(pack, func(r packRecord) {
			if r.Kind == 0 {
				t.Errorf("a record without a value was handed out: %+v", r)
			}
		})
	})
}

func TestAddDecimals(t *testing.T) {
	tests := []struct{ a, b, want string }{
		{"", "", ""},
		{"1585673980", "", "1585673980"},
		{"1585673980.000", "", "1585673980"},
		{"1764542400.123", "0.877", "1764542401"},
		{"100", "-0.5", "99.5"},
		{"", "7", "7"},
	}
	for _, test := range tests {
		got, err := addDecimals(test.a, test.b)
		if err != nil {
			t.Fatal(err)
		}
		if got != test.want {
			t.Errorf("%q + %q: got %q, want %q", test.a, test.b, got, test.want)
		}
	}
}
