package config

import "strings"

// nearest returns the candidate that word most likely was meant to be, or "".
func nearest(word string, candidates []string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
	}
	best, bestDistance := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if d := distance(plain(word), plain(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == "" {
		// One is often a part of the other: "topic_base", "base".
		for _, c := range candidates {
			if len(word) > 3 && (strings.Contains(c, word) || len(c) > 3 && strings.Contains(word, c)) {
				return c
			}
		}
	}
	return best
}

// distance is how many single letters must be inserted, removed, replaced or
// swapped with their neighbour to turn a into b (optimal string alignment).
func distance(a, b string) int {
	// A key is short; what is longer than any key resembles none of them.
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
