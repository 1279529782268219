package lab

import (
	"fmt"
	"math/big"
	"strings"
)

// addDecimals adds two decimal literals exactly; an empty one is zero. The sum
// has no trailing zeroes, so that equal sums are equal strings.
func addDecimals(a, b string) (string, error) {
	if b == "" {
		return trimDecimal(a), nil
	}
	sum := new(big.Rat)
	places := 0
	for _, s := range []string{a, b} {
		if s == "" {
			continue
		}
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			return "", fmt.Errorf("%q is not a number", s)
		}
		sum.Add(sum, r)
		_, decimals, _ := strings.Cut(s, ".")
		places = max(places, len(decimals))
	}
	return trimDecimal(sum.FloatString(places)), nil
}

func trimDecimal(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
