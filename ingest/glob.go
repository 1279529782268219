package ingest

// glob reports whether s matches pattern, in which "*" stands for any run of
// characters, "/" included. The empty pattern matches everything.
func glob(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	p, i := 0, 0
	star, mark := -1, 0 // the last "*" met, and where in s its run ends
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
