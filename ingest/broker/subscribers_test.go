package broker

import (
	"fmt"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// What the acknowledgement's detour must not take away: local subscribers get
// everything a broker owes them.

func TestSubscriberGetsPublishersQoS(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	for _, v := range versions {
		for qos := byte(0); qos <= 2; qos++ {
			for granted := byte(0); granted <= 1; granted++ {
				topic := fmt.Sprintf("t/%d/%d/%d", v.version, qos, granted)
				sub := dial(t, b, v.version, "reader")
				if got := sub.subscribe(packets.Subscription{Filter: topic, Qos: granted}); got[0] != granted {
					t.Fatalf("granted: got %d, want %d", got[0], granted)
				}
				pub := dial(t, b, v.version, "sensor")
				id := uint16(1)
				if qos == 0 {
					id = 0
				}
				pub.send(publish(id, qos, topic, topic))
				if got, want := sub.expectMessage(topic).FixedHeader.Qos, min(qos, granted); got != want {
					t.Errorf("%s: got QoS %d, want %d", topic, got, want)
				}
			}
		}
	}
}

// A subscription is seen at once by publishers that had found none before.
func TestSubscribeAfterPublish(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	pub, sub := dial(t, b, 4, "sensor"), dial(t, b, 4, "reader")
	pub.send(publish(1, 1, "t", "unheard"))
	pub.expect(packets.Puback, 1)
	pub.expectQuiet() // it is acknowledged when it is stored, which can be before it is given to subscribers
	sub.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	pub.send(publish(2, 1, "t", "heard"))
	sub.expectMessage("heard")
}

func TestRetained(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	pub := dial(t, b, 4, "sensor")
	pub.send(retain(publish(1, 1, "t", "kept")), retain(publish(0, 0, "u", "kept too")))
	pub.expect(packets.Puback, 1)
	pub.expectQuiet()
	sink.awaitValues(t, "kept", "kept too")

	live := dial(t, b, 4, "live")
	live.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	pk := live.expectMessage("kept")
	if !pk.FixedHeader.Retain || pk.FixedHeader.Qos != 1 {
		t.Errorf("to a late subscriber: got retain %v QoS %d, want true and 1", pk.FixedHeader.Retain, pk.FixedHeader.Qos)
	}
	pub.send(retain(publish(2, 1, "t", "new")))
	if pk := live.expectMessage("new"); pk.FixedHeader.Retain {
		t.Error("to a present subscriber: got retain 1, want 0")
	}
	pub.send(retain(publish(3, 1, "t", "")))
	live.expectMessage("")
	late := dial(t, b, 4, "late")
	late.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	late.expectQuiet()
}

func TestNoLocalAndSubscriptionOptions(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	c := dial(t, b, 5, "both")
	c.subscribe(
		packets.Subscription{Filter: "own", Qos: 1, NoLocal: true},
		packets.Subscription{Filter: "echo", Qos: 1, RetainAsPublished: true},
	)
	c.send(publish(1, 1, "own", "not to me"))
	c.expect(packets.Puback, 1)
	c.expectQuiet()
	other := dial(t, b, 5, "other")
	other.send(publish(1, 1, "own", "from another"))
	c.expectMessage("from another")
	other.send(retain(publish(2, 1, "echo", "as published")))
	if pk := c.expectMessage("as published"); !pk.FixedHeader.Retain {
		t.Error("retain as published: got retain 0, want 1")
	}
}

func TestPropertiesReachSubscribers(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	sub := dial(t, b, 5, "reader")
	sub.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	pub := dial(t, b, 5, "sensor")
	pk := publish(1, 1, "t", "x")
	pk.Properties.User = []packets.UserProperty{{Key: "site", Val: "north"}}
	pk.Properties.ContentType = "text/plain"
	pk.Properties.MessageExpiryInterval = 100
	pub.send(pk)
	got := sub.expectMessage("x").Properties
	if len(got.User) != 1 || got.User[0].Val != "north" || got.ContentType != "text/plain" ||
		got.MessageExpiryInterval == 0 || got.MessageExpiryInterval > 100 {
		t.Errorf("properties: got %+v", got)
	}
}

func TestSharedSubscription(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	one, two := dial(t, b, 5, "one"), dial(t, b, 5, "two")
	for _, c := range []*rawClient{one, two} {
		if got := c.subscribe(packets.Subscription{Filter: "$share/group/t"}, packets.Subscription{Filter: "end"}); got[0] != 0 {
			t.Fatalf("shared subscription: got %#x", got[0])
		}
	}
	const n = 20
	pub := dial(t, b, 5, "sensor")
	for i := range n {
		pub.send(publish(uint16(i+1), 1, "t", "x"))
		pub.expect(packets.Puback, uint16(i+1))
	}
	got := 0
	pub.send(publish(n+1, 1, "end", "end"))
	for _, c := range []*rawClient{one, two} {
		for string(c.receive().Payload) != "end" {
			got++
		}
	}
	if got != n {
		t.Errorf("messages to the group: got %d, want %d", got, n)
	}
}

func TestTopicAlias(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink, Anonymous: Rights{Publish: []string{"t/#"}, Subscribe: []string{"#"}}})
	sub := dial(t, b, 5, "reader")
	sub.subscribe(packets.Subscription{Filter: "t/#", Qos: 0})
	pub := dial(t, b, 5, "sensor")
	if got := pub.connack.Properties.TopicAliasMaximum; got != aliasMaximum {
		t.Errorf("topic alias maximum: got %d, want %d", got, aliasMaximum)
	}
	aliased := func(id uint16, topic, payload string, alias uint16) packets.Packet {
		pk := publish(id, 1, topic, payload)
		pk.Properties.TopicAlias, pk.Properties.TopicAliasFlag = alias, true
		return pk
	}
	pub.send(aliased(1, "t/a", "1", 5), aliased(2, "", "2", 5), aliased(3, "t/b", "3", 5), aliased(4, "", "4", 5))
	for id := range uint16(4) {
		pub.expect(packets.Puback, id+1)
	}
	for i, topic := range []string{"t/a", "t/a", "t/b", "t/b"} {
		if pk := sub.expectMessage(fmt.Sprint(i + 1)); pk.TopicName != topic {
			t.Errorf("message %d: got topic %q, want %q", i+1, pk.TopicName, topic)
		}
	}
	// An alias does not lend the right to publish to its topic.
	pub.send(aliased(5, "forbidden", "5", 6), aliased(6, "", "6", 6))
	for id := uint16(5); id <= 6; id++ {
		if pk := pub.expect(packets.Puback, id); pk.ReasonCode != packets.ErrNotAuthorized.Code {
			t.Errorf("publish %d: got reason %#x, want 0x87", id, pk.ReasonCode)
		}
	}
	pub.send(aliased(7, "", "7", 77))
	pub.expectEnd()
	sink.awaitValues(t, "1", "2", "3", "4")
}

func TestWill(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			sink := newGroupSink(t, 0)
			b := start(t, Options{Sink: sink, Anonymous: Rights{Publish: []string{"t/#"}, Subscribe: []string{"#"}}})
			sub := dial(t, b, v.version, "reader")
			sub.subscribe(packets.Subscription{Filter: "#", Qos: 1})

			dial(t, b, v.version, "dies", withWill("t/state", "offline", 1, true, 0)).conn.Close()
			sub.expectMessage("offline")
			sink.awaitValues(t, "offline")
			late := dial(t, b, v.version, "late")
			late.subscribe(packets.Subscription{Filter: "t/state"})
			late.expectMessage("offline")

			// A clean end cancels the will; one without the right is refused.
			c := dial(t, b, v.version, "leaves", withWill("t/state", "wrong", 1, true, 0))
			c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}})
			c.expectEnd()
			dial(t, b, v.version, "lurks", withWill("u", "forbidden", 0, true, 0)).conn.Close()
			dial(t, b, v.version, "lurks", withWill("$SYS/broker/uptime", "forged", 0, true, 0)).conn.Close()
			dial(t, b, v.version, "lurks").expectQuiet()
			sub.expectQuiet()
			sink.awaitValues(t, "offline")
		})
	}
}

// A delayed will is due when the session ends, if that is sooner, and not at
// all if the client is back in time.
func TestDelayedWill(t *testing.T) {
	sink := newGroupSink(t, 0)
	b := start(t, Options{Sink: sink})
	dial(t, b, 5, "keeps", withWill("t", "too early", 0, false, 100), keepSession).conn.Close()
	dial(t, b, 5, "keeps", keepSession).expectQuiet()
	dial(t, b, 5, "short", withWill("t", "session over", 0, false, 100)).conn.Close()
	sink.awaitValues(t, "session over")
	dial(t, b, 5, "slow", withWill("t", "delayed", 0, false, 1), keepSession).conn.Close()
	sink.awaitValues(t, "session over", "delayed")

	dial(t, b, 5, "gone", withWill("t", "never came back", 0, true, 100), keepSession).conn.Close()
	<-b.established("gone").finished
	cl, _ := b.server.Clients.Get("gone")
	b.hook.OnClientExpired(cl)
	sink.awaitValues(t, "session over", "delayed", "never came back")
	late := dial(t, b, 5, "late")
	late.subscribe(packets.Subscription{Filter: "t"})
	late.expectMessage("never came back")
}

// The same client id connecting again and again leaves exactly the last
// connection, with its subscription.
func TestTakeover(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	pub := dial(t, b, 4, "sensor")
	for i := range 50 {
		c := dial(t, b, 4, "same")
		c.subscribe(packets.Subscription{Filter: "t", Qos: 1})
		id, payload := uint16(i+1), fmt.Sprint(i)
		pub.send(publish(id, 1, "t", payload))
		pub.expect(packets.Puback, id)
		c.expectMessage(payload)
	}
}

// What waits for a client that is away is delivered when it returns, and its
// session's end removes its subscriptions.
func TestSessionExpiry(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	pub := dial(t, b, 4, "sensor")
	away := dial(t, b, 4, "away", keepSession)
	away.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	away.conn.Close()
	pub.send(publish(1, 1, "t", "waited"))
	pub.expect(packets.Puback, 1)
	away = dial(t, b, 4, "away", keepSession)
	if !away.connack.SessionPresent {
		t.Error("session present: got false, want true")
	}
	away.expectMessage("waited")

	cl, _ := b.server.Clients.Get("away")
	b.hook.OnClientExpired(cl)
	if b.hasSubscribers("t") {
		t.Error("subscription of an expired session: still there")
	}
}

// What waited for a client is sent first, in order, and never more at once than
// the client wants (MQTT 5.0, 4.6 and 4.9); what is sent again says so.
func TestOrderAndReceiveMaximum(t *testing.T) {
	const n, maximum = 200, 10
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			b := start(t, Options{Sink: newGroupSink(t, 0)})
			connect := func() *rawClient {
				return dial(t, b, v.version, "reader", keepSession, func(pk *packets.Packet) {
					pk.Properties.ReceiveMaximum = maximum
				})
			}
			sub := connect()
			sub.subscribe(packets.Subscription{Filter: "t", Qos: 2})
			pub := dial(t, b, v.version, "sensor")
			send := func(from, to int) {
				for i := from; i < to; i++ {
					pub.send(publish(uint16(i+1), 1, "t", fmt.Sprint(i)))
					pub.expect(packets.Puback, uint16(i+1))
				}
			}
			send(0, 5)
			for range 5 {
				sub.receive() // and not acknowledged
			}
			sub.conn.Close()
			<-b.established("reader").finished
			send(5, n)
			sub = connect()
			var unacknowledged []uint16
			for i := range n + 50 {
				if i == n-20 {
					send(n, n+50)
				}
				pk := sub.receive()
				if got, want := string(pk.Payload), fmt.Sprint(i); got != want {
					t.Fatalf("message %d: got %s %q", i, packets.PacketNames[pk.FixedHeader.Type], got)
				}
				if got, want := pk.FixedHeader.Dup, i < 5; got != want {
					t.Errorf("message %d: got DUP %v, want %v", i, got, want)
				}
				if unacknowledged = append(unacknowledged, pk.PacketID); len(unacknowledged) == maximum {
					if v.version == 5 {
						sub.expectQuiet()
					}
					for _, id := range unacknowledged {
						sub.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}, PacketID: id})
					}
					unacknowledged = nil
				}
			}
		})
	}
}

// A subscriber that does not read, or is away, does not hold up its publisher,
// and what waits for it is bounded in bytes.
func TestSubscriberThatDoesNotRead(t *testing.T) {
	for qos := range byte(2) {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("QoS %d, away %v", qos, away), func(t *testing.T) {
				sink := newGroupSink(t, 0)
				sink.discard = true
				b := start(t, Options{Sink: sink})
				stuck := dial(t, b, 4, "stuck", keepSession)
				stuck.subscribe(packets.Subscription{Filter: "#", Qos: qos})
				ended := b.established("stuck").finished
				if away {
					stuck.conn.Close()
					<-ended
				}
				pub := dial(t, b, 4, "sensor")
				payload := string(make([]byte, 256<<10))
				for i := range 60 {
					pub.send(publish(uint16(i+1), 1, "t", payload))
					pub.expect(packets.Puback, uint16(i+1))
					if got := b.waiting.Load(); got > queueBytes {
						t.Fatalf("waiting after message %d: got %d bytes, want at most %d", i+1, got, queueBytes)
					}
				}
				if got := b.Stats().Undelivered; got == 0 && (qos == 1 || !away) {
					t.Error("undelivered: got 0")
				}
				stuck.conn.Close()
				<-ended
				dial(t, b, 4, "stuck") // a clean session ends what is left of the other
				if got := b.waiting.Load(); got != 0 {
					t.Errorf("waiting after the session's end: got %d bytes, want 0", got)
				}
			})
		}
	}
}

// All subscribers together are bounded too.
func TestQueuesAreBoundedTogether(t *testing.T) {
	sink := newGroupSink(t, 0)
	sink.discard = true
	b := start(t, Options{Sink: sink})
	for i := range 2 * queuesBytes / queueBytes {
		c := dial(t, b, 4, fmt.Sprint("away", i), keepSession)
		c.subscribe(packets.Subscription{Filter: "t", Qos: 1})
		c.conn.Close()
		<-b.established(fmt.Sprint("away", i)).finished
	}
	pub := dial(t, b, 4, "sensor")
	for i := range uint16(5) {
		pub.send(publish(i+1, 1, "t", string(make([]byte, 500<<10))))
		pub.expect(packets.Puback, i+1)
	}
	if got := b.waiting.Load(); got > queuesBytes || got < queuesBytes/2 {
		t.Errorf("waiting: got %d bytes, want at most %d, and more than half of it", got, queuesBytes)
	}
}

// A message larger than the client takes is left out, and does not count for
// what the client has to complete (MQTT 5.0, 3.1.2.11.4).
func TestMaximumPacketSizeOfSubscriber(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	sub := dial(t, b, 5, "reader", func(pk *packets.Packet) {
		pk.Properties.MaximumPacketSize, pk.Properties.ReceiveMaximum = 100, 2
	})
	sub.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	pub := dial(t, b, 5, "sensor")
	large := string(make([]byte, 100))
	for i, p := range []string{large, large, large, "1", large, "2"} {
		pub.send(publish(uint16(i+1), 1, "t", p))
		pub.expect(packets.Puback, uint16(i+1))
	}
	sub.expectMessage("1")
	sub.expectMessage("2")
	sub.expectQuiet()
	if got := b.Stats().Undelivered; got != 4 {
		t.Errorf("undelivered: got %d, want 4", got)
	}
	if got := b.waiting.Load(); got != 0 {
		t.Errorf("waiting: got %d bytes, want 0", got)
	}
}

// A client gets what waited under its id only as far as it may read it now: it
// may be another user.
func TestRightsWhenMessagesHaveWaited(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0),
		Anonymous: Rights{Publish: []string{"#"}, Subscribe: []string{"open"}},
		Users:     []User{{Name: "u", Password: "p", Rights: Rights{Subscribe: []string{"#"}}}}})
	sub := dial(t, b, 4, "same", keepSession, withUser("u", "p"))
	sub.subscribe(packets.Subscription{Filter: "#", Qos: 1})
	sub.conn.Close()
	<-b.established("same").finished
	pub := dial(t, b, 4, "sensor")
	for i, topic := range []string{"open", "secret", "open"} {
		pub.send(publish(uint16(i+1), 1, topic, topic))
		pub.expect(packets.Puback, uint16(i+1))
	}
	sub = dial(t, b, 4, "same", keepSession)
	sub.expectMessage("open")
	sub.expectMessage("open")
	sub.expectQuiet()
}

// Clients that come with a new id each time do not fill the memory.
func TestSessionsAreBounded(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0), MaxClients: 2})
	for i := range 10 {
		c := dial(t, b, 4, fmt.Sprint("new", i), keepSession)
		c.subscribe(packets.Subscription{Filter: "t", Qos: 1})
		c.conn.Close()
		<-b.established(fmt.Sprint("new", i)).finished
	}
	if s := b.Stats(); s.Sessions != 4 || s.Forgotten != 6 {
		t.Errorf("got %d sessions, %d forgotten, want 4 and 6", s.Sessions, s.Forgotten)
	}
	if !dial(t, b, 4, "new9", keepSession).connack.SessionPresent {
		t.Error("the latest session: got forgotten")
	}
}

// A returning client may subscribe again, under an identifier that a message
// waiting for it happens to have: the two sides number apart (MQTT 5.0, 2.2.1).
func TestSubscribeWhileMessagesWait(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			b := start(t, Options{Sink: newGroupSink(t, 0)})
			sub := dial(t, b, v.version, "reader", keepSession)
			sub.subscribe(packets.Subscription{Filter: "t", Qos: 2})
			sub.conn.Close()
			<-b.established("reader").finished
			pub := dial(t, b, v.version, "sensor")
			for i := range uint16(3) {
				pub.send(publish(i+1, 1, "t", "waits"))
				pub.expect(packets.Puback, i+1)
			}
			sub = dial(t, b, v.version, "reader", keepSession)
			for _, kind := range []byte{packets.Subscribe, packets.Unsubscribe} {
				sub.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: kind}, PacketID: 2,
					Filters: packets.Subscriptions{{Filter: "t", Qos: 2}}})
			}
			answers := 0
			for answers < 2 {
				pk := sub.receive()
				if pk.FixedHeader.Type == packets.Publish {
					continue
				}
				answers++
				if pk.PacketID != 2 || len(pk.ReasonCodes) > 0 && pk.ReasonCodes[0] > 2 {
					t.Errorf("%s %d: got reason codes %x", packets.PacketNames[pk.FixedHeader.Type], pk.PacketID, pk.ReasonCodes)
				}
			}
		})
	}
}

// A message that comes while its subscriber's session moves to a new connection
// is not lost.
func TestMessageDuringTakeover(t *testing.T) {
	b := start(t, Options{Sink: newGroupSink(t, 0)})
	sub := dial(t, b, 4, "reader", keepSession)
	sub.subscribe(packets.Subscription{Filter: "t", Qos: 1})
	old, _ := b.server.Clients.Get("reader")
	sub = dial(t, b, 4, "reader", keepSession)
	// What the library does for a publisher that found the old client.
	pk := publish(1, 1, "t", "late")
	old.State.Inflight.Set(pk)
	b.hook.OnQosPublish(old, pk, 0, 0)
	sub.expectMessage("late")
	sub.expectQuiet()
	if got := b.waiting.Load(); got != 0 {
		t.Errorf("waiting: got %d bytes, want 0", got)
	}
}
