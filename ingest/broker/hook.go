package broker

import (
	"errors"
	"math"
	"sync/atomic"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// hook is where the library asks the broker.
type hook struct {
	mqtt.HookBase
	broker *Broker
}

func (h *hook) ID() string { return "sluice" }

func (h *hook) Provides(what byte) bool {
	switch what {
	case mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnACLCheck,
		mqtt.OnSessionEstablish, mqtt.OnSessionEstablished, mqtt.OnDisconnect,
		mqtt.OnPacketRead, mqtt.OnPacketEncode, mqtt.OnPublish, mqtt.OnPublished,
		mqtt.OnSubscribed, mqtt.OnUnsubscribed, mqtt.OnPublishDropped,
		mqtt.OnQosPublish, mqtt.OnQosComplete, mqtt.OnQosDropped, mqtt.OnClientExpired,
		mqtt.OnRetainMessage, mqtt.OnRetainedExpired,
		mqtt.OnWill, mqtt.OnWillSent:
		return true
	}
	return false
}

// OnConnect ties the library's client to our connection.
func (h *hook) OnConnect(cl *mqtt.Client, _ packets.Packet) error {
	c := connOf(cl)
	if c == nil {
		return packets.ErrUnspecifiedError
	}
	c.client = cl
	// The library gives an alias to messages that wait for a client's return,
	// and the alias is unknown to the connection that they are sent on.
	cl.Properties.Props.TopicAliasMaximum = 0
	// The outbox counts, not the library.
	c.outbox.maximum = int(cl.Properties.Props.ReceiveMaximum)
	cl.Properties.Props.ReceiveMaximum = 0
	cl.State.Inflight.ResetSendQuota(0)
	if cl.Properties.ProtocolVersion == 5 && cl.Properties.Props.SessionExpiryInterval == 0 {
		// The session ends with the connection, and the will is due at the
		// session's end at the latest (MQTT 5.0, 3.1.3.2.2).
		cl.Properties.Will.WillDelayInterval = 0
	}
	c.window.configure(cl)
	return nil
}

// OnConnectAuthenticate checks the password.
func (h *hook) OnConnectAuthenticate(cl *mqtt.Client, pk packets.Packet) bool {
	c := connOf(cl)
	if h.broker.authenticate(c, pk.Connect) {
		return true
	}
	h.broker.counters.strangers.Add(1)
	h.broker.log.Warn("mqtt client refused: unknown user or wrong password",
		"user", string(pk.Connect.Username), "client", cl.ID, "remote", cl.Net.Remote)
	return false
}

// OnSessionEstablish waits until the client's former connection has ended.
func (h *hook) OnSessionEstablish(cl *mqtt.Client, pk packets.Packet) {
	c := connOf(cl)
	h.broker.arrive(c)
	h.broker.forgetSession(cl.ID)
	c.sender = "mqtt:" + cl.ID
	if old, ok := h.broker.server.Clients.Get(cl.ID); ok {
		c.session = connOf(old).session
		if pk.Connect.Clean || old.Properties.Clean && old.Properties.ProtocolVersion < 5 {
			c.session.end()
			c.session = nil
		}
	}
	if c.session == nil {
		c.session = newSession(h.broker)
	}
}

// OnSessionEstablished lets messages go to the client, and its next connection
// come.
func (h *hook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	// SetUsers looks only at clients that the library lists already.
	h.broker.review(cl, h.broker.directory.Load())
	// The window bounds what is received. The library would count down with
	// QoS 2 messages that it sends, and disconnect a client that is slow to
	// complete them.
	cl.State.Inflight.ResetReceiveQuota(math.MaxInt32)
	h.catchUp(cl)
	c := connOf(cl)
	c.outbox.resume()
	c.settled()
}

// OnDisconnect tells an MQTT 5 client what was wrong with its last packet (MQTT
// 5.0, 4.13): the library tells it only of packets that it could read.
func (h *hook) OnDisconnect(cl *mqtt.Client, err error, expire bool) {
	c := connOf(cl)
	if expire {
		c.session.end()
	}
	if errors.Is(err, packets.ErrPacketTooLarge) {
		// Its sender will try again and again, and no packet says why before
		// MQTT 5.
		h.broker.counters.refuse(packets.ErrPacketTooLarge.Code)
		h.broker.log.Warn("mqtt packet larger than the limit, client disconnected",
			"client", cl.ID, "limit", h.broker.options.MaxPacket)
	}
	var code packets.Code
	if cl.Properties.ProtocolVersion == 5 && !c.told.Load() &&
		errors.As(err, &code) && code.Code >= packets.ErrUnspecifiedError.Code {
		_ = c.outbox.write([]byte{packets.Disconnect << 4, 2, code.Code, 0})
	}
}

// OnPacketEncode takes messages for the client to the outbox, and tells MQTT 5
// clients the limits that the library leaves out of CONNACK.
func (h *hook) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	c := connOf(cl)
	switch kind := pk.FixedHeader.Type; {
	case kind == packets.Connack:
		pk.Properties.TopicAliasMaximum = aliasMaximum
		pk.Properties.MaximumPacketSize = uint32(h.broker.options.MaxPacket)
	case kind == packets.Suback || kind == packets.Unsuback:
		pk.PacketID = c.request
	case kind == packets.Disconnect:
		c.told.Store(true)
	case c.resuming() && (kind == packets.Publish && pk.FixedHeader.Dup || kind == packets.Pubrel):
		// The library sends what a returning client is owed in any order and
		// all at once.
		c.discard.Store(true)
	case kind == packets.Publish:
		m := message{id: pk.PacketID}
		if pk.FixedHeader.Qos == 0 {
			m.pk = &pk
		}
		if !c.outbox.put(m) {
			h.broker.counters.undelivered.Add(1)
			h.slow(cl)
		}
		return packets.Packet{} // it has no type: the library does not write it
	}
	return pk
}

// OnQosPublish notes a message of QoS 1 or 2 that the library has put in flight.
// The client may be away.
func (h *hook) OnQosPublish(cl *mqtt.Client, pk packets.Packet, _ int64, _ int) {
	if pk.FixedHeader.Type != packets.Publish || pk.FixedHeader.Dup {
		return
	}
	c := connOf(cl)
	if cl.IsTakenOver() {
		c.session.missed(pk)
		if now, ok := h.broker.server.Clients.Get(cl.ID); ok && now != cl {
			h.catchUp(now)
		}
		return
	}
	if !c.session.owe(pk.PacketID, messageSize(&pk)) {
		c.drop(pk.PacketID)
		h.slow(cl)
	}
}

// slow says that messages to a subscriber are dropped.
func (h *hook) slow(cl *mqtt.Client) {
	h.broker.log.Warn("mqtt subscriber too slow or away: too much waits for it, messages to it are dropped", "client", cl.ID)
}

// catchUp gives the client what its former connection could not keep.
func (h *hook) catchUp(cl *mqtt.Client) {
	c := connOf(cl)
	for _, pk := range c.session.takeMissed() {
		id, err := cl.NextPacketID()
		if err != nil {
			h.broker.counters.undelivered.Add(1)
			continue
		}
		pk.PacketID = uint16(id)
		if cl.State.Inflight.Set(pk) {
			atomic.AddInt64(&h.broker.server.Info.Inflight, 1)
		}
		h.OnQosPublish(cl, pk, pk.Created, 0)
		c.outbox.put(message{id: pk.PacketID})
	}
}

// OnQosComplete and OnQosDropped end what OnQosPublish began.
func (h *hook) OnQosComplete(cl *mqtt.Client, pk packets.Packet) {
	if c := connOf(cl); c.session.complete(pk.PacketID) {
		c.outbox.completed()
	}
}

func (h *hook) OnQosDropped(cl *mqtt.Client, pk packets.Packet) {
	// The library also drops what it has just moved to the client's next
	// connection.
	if !cl.IsTakenOver() {
		h.OnQosComplete(cl, pk)
	}
}

// OnACLCheck is asked before a publish, before a subscription (topic is then a
// filter), and before each delivery to a subscriber.
func (h *hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	c := connOf(cl)
	r := c.rights.Load()
	if !write {
		return r.maySubscribe(topic)
	}
	if r.mayPublish(topic) {
		return true
	}
	h.broker.refuse(c, packets.ErrNotAuthorized, "no right to publish to "+topic)
	return false
}

// OnSubscribed and OnUnsubscribed make connections look for subscribers again.
func (h *hook) OnSubscribed(*mqtt.Client, packets.Packet, []byte) { h.broker.subscribed.Add(1) }
func (h *hook) OnUnsubscribed(*mqtt.Client, packets.Packet)       { h.broker.subscribed.Add(1) }

// OnPublishDropped counts what came faster than the library hands over.
func (h *hook) OnPublishDropped(cl *mqtt.Client, _ packets.Packet) {
	h.broker.counters.undelivered.Add(1)
	connOf(cl).overrun.Store(true)
	h.slow(cl)
}

// OnClientExpired removes what the library leaves behind of an expired session:
// its subscriptions, which would otherwise pass to the next client of that id.
func (h *hook) OnClientExpired(cl *mqtt.Client) {
	h.broker.server.UnsubscribeClient(cl)
	cl.ClearInflights()
	connOf(cl).session.end()
	h.broker.counters.forgotten.Add(1)
	if w := cl.Properties.Will; w.Flag != 0 && w.WillDelayInterval > 0 {
		// Due at the session's end at the latest (MQTT 5.0, 3.1.3.2.2). The
		// library still delivers it, but neither retains it nor says so: it
		// does not know the client any more.
		h.endWill(cl, w)
	}
}

func (h *hook) OnRetainMessage(_ *mqtt.Client, pk packets.Packet, change int64) {
	h.broker.retained.changed(pk, change)
}

func (h *hook) OnRetainedExpired(topic string) {
	h.broker.retained.expired(topic)
}
