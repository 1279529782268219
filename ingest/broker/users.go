package broker

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// Rights are MQTT topic filters: what may be published to, and what may be
// subscribed to and received. In a filter, the level %u stands for the user's
// name and %c for the client id. What no filter covers is denied.
type Rights struct {
	Publish   []string
	Subscribe []string
}

// User may connect with a name and a password.
type User struct {
	Name         string
	Password     string // in clear, or
	PasswordHash string // as HashPassword makes it: one of the two
	Rights       Rights
}

// directory is who may connect. It does not change; SetUsers makes a new one.
type directory struct {
	accounts  map[string]*account
	anonymous *account // nil: there are none
}

// account is a user as connections refer to it.
type account struct {
	user User
	hash *passwordHash // nil: the password is known in clear
	// digest is of the password, keyed with the broker's secret: known from
	// the start, or, with a hash, after the first success, so that only the
	// first connection pays for the hash.
	digest atomic.Pointer[[sha256.Size]byte]
}

// SetUsers replaces users and rights, or, if it returns an error that names
// every fault, changes nothing. Connected clients get their new rights at once;
// those whose user is gone or has another password are disconnected.
func (b *Broker) SetUsers(users []User, anonymous Rights) error {
	d := &directory{accounts: map[string]*account{}}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	check := func(who string, r Rights) {
		for _, f := range slices.Concat(r.Publish, r.Subscribe) {
			if !mqtt.IsValidFilter(f, false) || strings.ContainsRune(f, 0) || badWildcard(f) {
				fault("%s: topic filter %q: not a valid MQTT filter; use + for one level and # at the end for the rest", who, f)
			}
		}
	}
	for _, u := range users {
		who := fmt.Sprintf("mqtt user %q", u.Name)
		a := &account{user: u}
		switch {
		case u.Name == "":
			fault("mqtt user without a name: give it one")
		case d.accounts[u.Name] != nil:
			fault("%s: given twice", who)
		case (u.Password == "") == (u.PasswordHash == ""):
			fault("%s: give either a password or a password hash", who)
		case u.Password != "":
			digest := b.digest([]byte(u.Password))
			a.digest.Store(&digest)
		default:
			var err error
			if a.hash, err = parsePasswordHash(u.PasswordHash); err != nil {
				fault("%s: %w", who, err)
			}
		}
		check(who, u.Rights)
		d.accounts[u.Name] = a
	}
	if len(anonymous.Publish)+len(anonymous.Subscribe) > 0 {
		check("mqtt anonymous rights", anonymous)
		d.anonymous = &account{user: User{Rights: anonymous}}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}

	if old := b.directory.Load(); old != nil {
		for name, a := range d.accounts {
			if o := old.accounts[name]; o.samePassword(a) {
				a.digest.Store(o.digest.Load())
			}
		}
	}
	b.directory.Store(d)
	if b.server != nil {
		for _, cl := range b.server.Clients.GetAll() {
			b.review(cl, d)
		}
	}
	return nil
}

// review brings a client's rights up to date with d. A client that is away is
// reviewed too: messages wait for it.
func (b *Broker) review(cl *mqtt.Client, d *directory) {
	c := connOf(cl)
	if c == nil || c.account == nil {
		return
	}
	a := d.anonymous
	if name := c.account.user.Name; name != "" {
		a = d.accounts[name]
	}
	if a == nil || !c.account.samePassword(a) {
		c.rights.Store(&rights{})
		b.disconnect(cl, packets.ErrNotAuthorized)
		return
	}
	c.rights.Store(newRights(a.user.Rights, a.user.Name, cl.ID))
}

// samePassword is false when either is nil.
func (a *account) samePassword(o *account) bool {
	return a != nil && o != nil && a.user.Password == o.user.Password && a.user.PasswordHash == o.user.PasswordHash
}

// authenticate admits a connection, and gives it its rights.
func (b *Broker) authenticate(c *conn, p packets.ConnectParams) bool {
	d := b.directory.Load()
	a := d.anonymous
	if p.UsernameFlag {
		a = d.accounts[string(p.Username)]
		if a == nil || !b.knows(a, p.Password) {
			return false
		}
	}
	if a == nil {
		return false
	}
	c.account = a
	c.rights.Store(newRights(a.user.Rights, a.user.Name, c.client.ID))
	return true
}

// knows checks a password in a time that does not tell how much of it is right.
func (b *Broker) knows(a *account, password []byte) bool {
	given := b.digest(password)
	if want := a.digest.Load(); want != nil {
		return subtle.ConstantTimeCompare(given[:], want[:]) == 1
	}
	// One at a time: guessing passwords must not take every core.
	b.hashing.Lock()
	defer b.hashing.Unlock()
	if !a.hash.matches(password) {
		return false
	}
	a.digest.Store(&given)
	return true
}

func (b *Broker) digest(password []byte) (d [sha256.Size]byte) {
	m := hmac.New(sha256.New, b.secret[:])
	m.Write(password)
	m.Sum(d[:0])
	return d
}

// rights are Rights as they apply to one connection.
type rights struct {
	publish, subscribe []string
}

func newRights(r Rights, user, client string) *rights {
	return &rights{
		publish:   substitute(r.Publish, user, client),
		subscribe: substitute(r.Subscribe, user, client),
	}
}

// substitute fills in %u and %c. A name that is more than one plain level would
// widen the right, so its filters are left out.
func substitute(filters []string, user, client string) []string {
	var out []string
	for _, f := range filters {
		levels := strings.Split(f, "/")
		usable := true
		for i, l := range levels {
			switch l {
			case "%u":
				levels[i] = user
			case "%c":
				levels[i] = client
			default:
				continue
			}
			usable = usable && levels[i] != "" && !strings.ContainsAny(levels[i], "+#/$")
		}
		if usable {
			out = append(out, strings.Join(levels, "/"))
		}
	}
	return out
}

func (r *rights) mayPublish(topic string) bool {
	return r != nil && anyCovers(r.publish, topic)
}

func (r *rights) maySubscribe(filter string) bool {
	return r != nil && anyCovers(r.subscribe, shared(filter))
}

func anyCovers(filters []string, asked string) bool {
	for _, f := range filters {
		if covers(f, asked) {
			return true
		}
	}
	return false
}

// badWildcard reports a wildcard that shares its level with other characters,
// which the library accepts.
func badWildcard(filter string) bool {
	for l := range bytes.SplitSeq([]byte(filter), []byte("/")) {
		if len(l) > 1 && bytes.ContainsAny(l, "+#") {
			return true
		}
	}
	return false
}
