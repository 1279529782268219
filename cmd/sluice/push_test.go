package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/ingest/push"
)

// What comes through a pipe without a time is something new each time; a file,
// and what says when it was measured, is the same batch however often it comes.
func TestBatchIDs(t *testing.T) {
	const undated, dated = `[{"n":"door","vb":true}]`, `[{"n":"door","vb":true,"t":1422886740}]`
	for _, test := range []struct {
		name, pack string
		pipe, same bool
	}{
		{"file", undated, false, true},
		{"dated file", dated, false, true},
		{"pipe", undated, true, false},
		{"dated pipe", dated, true, true},
	} {
		var ids []string
		for range 2 {
			_, parts, err := cut([]byte(test.pack), test.pipe)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, parts[0].ID)
		}
		if same := ids[0] == ids[1]; same != test.same {
			t.Errorf("%s: got %q, want the same: %v", test.name, ids, test.same)
		}
		if len(ids[0]) > 128 {
			t.Errorf("%s: id %q is longer than a gateway takes", test.name, ids[0])
		}
	}
}

// A terminal's line never wraps, and what is no terminal hears of trouble only.
func TestProgress(t *testing.T) {
	failed := push.Progress{Try: 3, Err: errors.New("no answer: " + strings.Repeat("x", 100)), Wait: 1500 * time.Millisecond}
	for width, want := range map[int]string{
		0:  "sluice push: try 3, next in 1.5s: no answer: " + strings.Repeat("x", 100) + "\n",
		40: "\r\x1b[Kaccepted 1 of 2  \r\x1b[Kaccepted 1 of 2  try 3, next in 1.5s: n\n",
	} {
		var out bytes.Buffer
		p := progress{w: &out, width: width, parts: 2}
		p.try(push.Progress{Try: 1})
		p.try(failed)
		p.end()
		if got := out.String(); got != want {
			t.Errorf("width %d: got %q, want %q", width, got, want)
		}
	}
}
