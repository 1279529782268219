package senml

import (
	"encoding/hex"
	"strings"
	"testing"
)

// The examples of RFC 8428, sections 5.1 and 6.
func TestExamplesOfTheRFC(t *testing.T) {
	const several = "urn:dev:ow:10e2073a0108006|voltage|V|120.1|1.276020076001e+09\n" +
		"urn:dev:ow:10e2073a0108006|current|A|1.2|1.276020071001e+09\n" +
		"urn:dev:ow:10e2073a0108006|current|A|1.3|1.276020072001e+09\n" +
		"urn:dev:ow:10e2073a0108006|current|A|1.4|1.276020073001e+09\n" +
		"urn:dev:ow:10e2073a0108006|current|A|1.5|1.276020074001e+09\n" +
		"urn:dev:ow:10e2073a0108006|current|A|1.6|1.276020075001e+09\n" +
		"urn:dev:ow:10e2073a0108006|current|A|1.7|1.276020076001e+09"
	for _, c := range []struct{ section, in, want string }{
		{"5.1.1", `[{"n":"urn:dev:ow:10e2073a01080063","u":"Cel","v":23.1}]`,
			"node1|urn:dev:ow:10e2073a01080063|Cel|23.1|now"},
		{"5.1.2", `[{"bn":"urn:dev:ow:10e2073a01080063:","n":"voltage","u":"V","v":120.1},{"n":"current","u":"A","v":1.2}]`,
			"urn:dev:ow:10e2073a01080063|voltage|V|120.1|now\nurn:dev:ow:10e2073a01080063|current|A|1.2|now"},
		{"5.1.2, with times", `[
			{"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":5,"n":"voltage","u":"V","v":120.1},
			{"n":"current","t":-5,"v":1.2},{"n":"current","t":-4,"v":1.3},{"n":"current","t":-3,"v":1.4},
			{"n":"current","t":-2,"v":1.5},{"n":"current","t":-1,"v":1.6},{"n":"current","v":1.7}]`, several},
		{"5.1.3", `[
			{"bn":"urn:dev:ow:10e2073a01080063","bt":1.320067464e+09,"bu":"%RH","v":20},
			{"u":"lon","v":24.30621},{"u":"lat","v":60.07965},{"t":60,"v":20.3}]`,
			"node1|urn:dev:ow:10e2073a01080063|%RH|20|1.320067464e+09\nnode1|urn:dev:ow:10e2073a01080063|lon|24.30621|1.320067464e+09\n" +
				"node1|urn:dev:ow:10e2073a01080063|lat|60.07965|1.320067464e+09\nnode1|urn:dev:ow:10e2073a01080063|%RH|20.3|1.320067524e+09"},
		{"5.1.5", `[{"bn":"urn:dev:ow:10e2073a01080063:","n":"temp","u":"Cel","v":23.1},{"n":"label","vs":"Machine Room"},
			{"n":"open","vb":false},{"n":"nfc-reader","vd":"aGkgCg"}]`,
			"urn:dev:ow:10e2073a01080063|temp|Cel|23.1|now\nurn:dev:ow:10e2073a01080063|label||Machine Room|now\n" +
				"urn:dev:ow:10e2073a01080063|open||false|now\nurn:dev:ow:10e2073a01080063|nfc-reader||aGkgCg|now"},
		{"5.1.6", `[{"bn":"2001:db8:1234:5678::1/","n":"temperature","u":"Cel","v":27.2},{"n":"humidity","u":"%RH","v":80}]`,
			"2001:db8:1234:5678::1|temperature|Cel|27.2|now\n2001:db8:1234:5678::1|humidity|%RH|80|now"},
	} {
		got, err := DecodeJSON([]byte(c.in), options())
		if err != nil {
			t.Errorf("%s: %v", c.section, err)
		} else if show(got) != c.want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", c.section, show(got), c.want)
		}
	}

	pack, err := hex.DecodeString(strings.ReplaceAll(
		"87 a7 21 78 1b 75 72 6e 3a 64 65 76 3a 6f 77 3a 31 30 65 32 30 37 33 61 30 31 30 38 30 30 36 3a "+
			"22 fb 41 d3 03 a1 5b 00 10 62 23 61 41 20 05 00 67 76 6f 6c 74 61 67 65 01 61 56 02 fb 40 5e 06 "+
			"66 66 66 66 66 a3 00 67 63 75 72 72 65 6e 74 06 24 02 fb 3f f3 33 33 33 33 33 33 a3 00 67 63 75 "+
			"72 72 65 6e 74 06 23 02 fb 3f f4 cc cc cc cc cc cd a3 00 67 63 75 72 72 65 6e 74 06 22 02 fb 3f "+
			"f6 66 66 66 66 66 66 a3 00 67 63 75 72 72 65 6e 74 06 21 02 f9 3e 00 a3 00 67 63 75 72 72 65 6e "+
			"74 06 20 02 fb 3f f9 99 99 99 99 99 9a a3 00 67 63 75 72 72 65 6e 74 06 00 02 fb 3f fb 33 33 33 "+
			"33 33 33", " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeCBOR(pack, options()); err != nil || show(got) != several {
		t.Errorf("6:\ngot\n%s, %v\nwant\n%s", show(got), err, several)
	}
}
