package broker

import (
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		filter, asked string
		want          bool
	}{
		{"#", "a", true}, {"#", "a/b", true}, {"#", "#", true}, {"#", "+/x", true},
		{"#", "$SYS/x", false}, {"+/x", "$SYS/x", false}, {"$SYS/#", "$SYS/x", true},
		{"a/#", "a", true}, {"a/#", "a/b/c", true}, {"a/#", "ab", false}, {"a/#", "#", false},
		{"a/+", "a/b", true}, {"a/+", "a", false}, {"a/+", "a/b/c", false}, {"a/+", "a/+", true},
		{"a/+", "a/#", false}, {"a/b", "a/+", false}, {"a", "a", true}, {"a", "a/b", false},
		{"a/b", "a", false}, {"+", "/a", false}, {"+/a", "/a", true}, {"a/+/c", "a//c", true},
		{"a/+/#", "a/b", true}, {"a/+/#", "a", false},
	} {
		if got := covers(c.filter, c.asked); got != c.want {
			t.Errorf("covers(%q, %q): got %v, want %v", c.filter, c.asked, got, c.want)
		}
	}
}

func FuzzCovers(f *testing.F) {
	f.Add("a/+/#", "a/b/c")
	f.Add("#", "$SYS")
	f.Add("%u/%c", "/")
	f.Fuzz(func(t *testing.T, filter, asked string) {
		covers(filter, asked)
		substitute([]string{filter}, asked, asked)
		if asked != "" && !strings.HasPrefix(asked, "$") && !covers("#", asked) {
			t.Errorf("# does not cover %q", asked)
		}
	})
}

func TestSubstitute(t *testing.T) {
	for _, c := range []struct{ filter, user, client, want string }{
		{"home/%u/%c", "ann", "phone", "home/ann/phone"},
		{"home/%c", "", "+", ""}, {"home/%c", "", "a/b", ""}, {"home/%c", "", "#", ""},
		{"home/%u", "", "x", ""}, {"%c/#", "", "$SYS", ""}, {"100%u", "ann", "", "100%u"},
	} {
		if got := strings.Join(substitute([]string{c.filter}, c.user, c.client), " "); got != c.want {
			t.Errorf("substitute(%q, %q, %q): got %q, want %q", c.filter, c.user, c.client, got, c.want)
		}
	}
}

func TestRights(t *testing.T) {
	hash, err := HashPassword("s3cret")
	if err != nil {
		t.Fatal(err)
	}
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink, Users: []User{
		{Name: "ann", PasswordHash: hash, Rights: Rights{Publish: []string{"home/%c/#"}, Subscribe: []string{"home/+/t"}}},
		{Name: "bob", Password: "pw", Rights: Rights{Subscribe: []string{"home/#"}}},
	}})
	for _, v := range versions {
		for _, c := range []struct {
			name     string
			options  []connectOption
			accepted bool
		}{
			{"no user", nil, false},
			{"unknown", []connectOption{withUser("eve", "pw")}, false},
			{"wrong hash", []connectOption{withUser("ann", "pw")}, false},
			{"wrong clear", []connectOption{withUser("bob", "s3cret")}, false},
			{"hash", []connectOption{withUser("ann", "s3cret")}, true},
			{"hash again", []connectOption{withUser("ann", "s3cret")}, true},
			{"wrong after the right one", []connectOption{withUser("ann", "pw")}, false},
			{"clear", []connectOption{withUser("bob", "pw")}, true},
		} {
			raw := dialRaw(t, b.Addrs()[0], v.version, "x", c.options...)
			if got := raw.connack.ReasonCode == 0; got != c.accepted {
				t.Errorf("%s, %s: accepted %v, want %v", v.name, c.name, got, c.accepted)
			}
		}
	}
	bob := dial(t, b, 5, "bob", withUser("bob", "pw"))
	got := bob.subscribe(packets.Subscription{Filter: "home/#", Qos: 1}, packets.Subscription{Filter: "#", Qos: 1},
		packets.Subscription{Filter: "$share/g/home/x", Qos: 1}, packets.Subscription{Filter: "$share/g/away", Qos: 1})
	for i, want := range []byte{1, 0x87, 1, 0x87} {
		if got[i] != want {
			t.Errorf("subscription %d: got %#x, want %#x", i, got[i], want)
		}
	}
	ann := dial(t, b, 5, "phone", withUser("ann", "s3cret"))
	ann.send(publish(1, 1, "home/phone/t", "yes"), publish(2, 1, "home/tv/t", "no"), publish(3, 2, "$SYS/x", "no"), publish(0, 0, "away", "no"))
	ann.expect(packets.Puback, 1)
	if pk := ann.expect(packets.Puback, 2); pk.ReasonCode != packets.ErrNotAuthorized.Code {
		t.Errorf("publish without right: got %#x, want 0x87", pk.ReasonCode)
	}
	if pk := ann.expect(packets.Pubrec, 3); pk.ReasonCode != packets.ErrTopicNameInvalid.Code {
		t.Errorf("publish to $SYS: got %#x, want 0x90", pk.ReasonCode)
	}
	bob.expectMessage("yes")
	bob.expectQuiet()
	old := dial(t, b, 4, "tv", withUser("ann", "s3cret"))
	old.send(publish(1, 1, "home/tv/t", "also"), publish(2, 1, "away", "no"), publish(3, 1, "home/tv/t", "later"))
	old.expect(packets.Puback, 1)
	old.expectEnd() // without an acknowledgement of 2, nor of 3 before it
	if s := b.Stats(); s.Refused["rights"] != 3 || s.Refused["topic"] != 1 {
		t.Errorf("refused: got %v, want rights 3 (one of QoS 0) and topic 1", s.Refused)
	}
}

// F4 and reload: who keeps password and user stays connected, with the new
// rights; who does not is disconnected.
func TestSetUsers(t *testing.T) {
	all := Rights{Publish: []string{"#"}, Subscribe: []string{"#"}}
	users := []User{
		{Name: "stays", Password: "a", Rights: all},
		{Name: "limited", Password: "b", Rights: all},
		{Name: "changes", Password: "c", Rights: all},
		{Name: "goes", Password: "d", Rights: all},
	}
	b := start(t, Options{Sink: newGroupSink(t, 0), Users: users})
	clients := map[string]*rawClient{}
	for _, u := range users {
		clients[u.Name] = dial(t, b, 5, u.Name, withUser(u.Name, u.Password))
		clients[u.Name].subscribe(packets.Subscription{Filter: "t", Qos: 0})
	}
	users[1].Rights = Rights{Publish: []string{"u"}}
	users[2].Password = "x"
	if err := b.SetUsers(users[:3], Rights{}); err != nil {
		t.Fatal(err)
	}
	clients["changes"].expectEnd()
	clients["goes"].expectEnd()
	clients["stays"].send(publish(1, 1, "t", "x"))
	got := map[byte]int{}
	for range 2 {
		got[clients["stays"].receive().FixedHeader.Type]++
	}
	if got[packets.Publish] != 1 || got[packets.Puback] != 1 {
		t.Errorf("to the client that stays: got packet types %v, want a PUBLISH and a PUBACK", got)
	}
	clients["limited"].expectQuiet() // may not receive any more
	clients["limited"].send(publish(1, 1, "t", "x"), publish(2, 1, "u", "x"))
	if pk := clients["limited"].expect(packets.Puback, 1); pk.ReasonCode != packets.ErrNotAuthorized.Code {
		t.Errorf("publish after the right was taken: got %#x, want 0x87", pk.ReasonCode)
	}
	clients["limited"].expect(packets.Puback, 2)
}

// Every fault is named at once, and nothing changes.
func TestSetUsersFaults(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	err := b.SetUsers([]User{
		{Password: "x"},
		{Name: "twice", Password: "x"}, {Name: "twice", Password: "x"},
		{Name: "neither"}, {Name: "both", Password: "x", PasswordHash: "y"},
		{Name: "hash", PasswordHash: "pbkdf2-sha256$0$c2FsdHNhbHQ$AAAA"},
		{Name: "filter", Password: "x", Rights: Rights{Publish: []string{"a/#/b", "a#", ""}}},
	}, Rights{Subscribe: []string{"b+"}})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"without a name", `"twice": given twice`, `"neither"`, `"both"`, "iterations",
		`"a/#/b"`, `"a#"`, `""`, `anonymous rights: topic filter "b+"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	dial(t, b, 4, "still anonymous")
}

func FuzzParsePasswordHash(f *testing.F) {
	f.Add("pbkdf2-sha256$1$c2FsdHNhbHQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("pbkdf2-sha256$99999999999999999999$$")
	f.Add("$$$")
	f.Fuzz(func(t *testing.T, s string) {
		if h, err := parsePasswordHash(s); err == nil && (h.iterations < 1 || len(h.key) != 32) {
			t.Errorf("accepted %q as %+v", s, h)
		}
	})
}
