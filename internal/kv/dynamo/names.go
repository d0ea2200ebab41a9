package dynamo

import "strings"

// Slug makes a name of s that NATS and etcd take: lower case, with an underscore for
// every character outside a-z, 0-9, underscore and hyphen, and without underscores
// at its beginning.
func Slug(s string) string {
	// The only character whose lower case is two: a letter, and a dot above it.
	s = strings.ReplaceAll(s, "İ", "i.")
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, strings.ToLower(s))
	return strings.TrimLeft(s, "_")
}

// Component is a component of a Dynamo deployment, such as "backend" in "dynamo".
type Component struct{ Namespace, Name string }

func (c Component) path() string { return "namespace." + c.Namespace + ".component." + c.Name }

// Subject is the NATS Core subject that the component's KV events are published to
// in envelopes.
func (c Component) Subject() string { return c.path() + "." + EventTopic }

// Stream is the JetStream stream of the component's KV events, which lie in it as
// JSON; its subjects are the stream's name, a dot and anything.
func (c Component) Stream() string { return hyphens(Slug(c.Subject())) }

// StreamSubject is the subject that the events of [Component.Stream] have.
func (c Component) StreamSubject() string { return c.Stream() + "." + EventTopic }

// Bucket is the object store that routers keep the snapshot of their index in, as
// [SnapshotObject].
func (c Component) Bucket() string { return hyphens(Slug(c.path() + "-radix-bucket")) }

// SnapshotObject is the name of the snapshot in its bucket.
const SnapshotObject = "radix-state"

func hyphens(s string) string { return strings.ReplaceAll(s, "_", "-") }
