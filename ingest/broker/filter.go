package broker

import "strings"

// covers reports whether every topic that asked matches, a topic or a filter,
// is matched by filter (MQTT 5.0, 4.7). Topics that begin with "$" are covered
// only by a filter that names their first level.
func covers(filter, asked string) bool {
	if strings.HasPrefix(asked, "$") && !strings.HasPrefix(filter, "$") {
		return false
	}
	for more := true; more; {
		var f, a string
		var filterMore bool
		f, filter, filterMore = strings.Cut(filter, "/")
		if f == "#" {
			return true
		}
		a, asked, more = strings.Cut(asked, "/")
		if f != a && (f != "+" || a == "#") {
			return false
		}
		if filterMore != more {
			// "a/#" covers "a" as well.
			return filterMore && filter == "#"
		}
	}
	return true
}

// shared strips the group from a shared subscription's filter (MQTT 5.0,
// 4.8.2).
func shared(filter string) string {
	const prefix = "$share/"
	if len(filter) < len(prefix) || !strings.EqualFold(filter[:len(prefix)], prefix) {
		return filter
	}
	_, inner, _ := strings.Cut(filter[len(prefix):], "/")
	return inner
}
