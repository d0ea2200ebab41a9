package simserver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/simengine"
)

// PublishConfig has a server tell of its KV caches as the engine does that it is
// dressed as: with tokens, and with that engine's own names for blocks. Fields that are
// 0 or empty take the default named.
type PublishConfig struct {
	// Listen is the host and port of the ZeroMQ socket of rank 0 to which others
	// connect; rank r listens r ports above. Port 0 means free ports, in a row. An
	// empty host or * means every address of the machine.
	Listen string
	// Connect is, in place of Listen, the host and port of a listening subscriber
	// that rank 0 connects to, and rank r r ports above; again and again until there
	// is one.
	Connect string
	// Replay is the host and port, as in Listen, at which batches that were missed
	// can be asked for; none if it is empty.
	Replay string
	// Topic comes before each batch.
	Topic string
	// Format is one of [EventFormats]; the default is the newest of the engine.
	// "map", "array" and "bytes" stand for the newest whose events are that, and for
	// map with hashes of blocks in full. With "trtllm", for an engine of the kind
	// vLLM, there is no socket: events are kept until they are asked for.
	Format string
	// Buffer is how many batches can be asked for again, or with "trtllm" how many
	// events are kept; default 10000.
	Buffer int
	// HWM is how many batches may wait for one subscriber; default 100000.
	HWM int
	// HashSeed is what vLLM's names for blocks begin with, the PYTHONHASHSEED of a
	// real one. By default they begin with something else each time the engine
	// starts, so that no two engines have the same names.
	HashSeed string
}

// EventFormats returns the formats that events can have: an engine and its first
// release that publishes that way, from old to new for each engine.
func EventFormats() []string {
	names := make([]string, len(layouts))
	for i := range layouts {
		names[i] = layouts[i].name
	}
	return names
}

// EventFaults is what is wrong with the events that are published on sockets. The zero
// value is nothing.
type EventFaults struct {
	// DropEvery is k where every k-th batch is not sent, though it can be asked for.
	DropEvery int
	// NoReplay leaves requests for missed batches without any answer.
	NoReplay bool
	// ReplayTruncated leaves only the ReplayKeep latest batches to be asked for.
	ReplayTruncated bool
	ReplayKeep      int
	// DuplicateStores tells of each block twice when it is stored, and twice when it
	// is removed if the engine tells of every copy.
	DuplicateStores bool
	// GroupEvents tells of each block once more as that of a cache with a sliding
	// window, in formats that have such groups.
	GroupEvents bool
	// ByteHashes writes the hashes of vLLM's blocks in full.
	ByteHashes bool
	// BlockSize is what events state in place of the block size.
	BlockSize int
}

// findLayout returns the layout of a format for a kind of engine.
func findLayout(kind simengine.Kind, format string) (layout, error) {
	var wanted func(*layout) bool
	switch format {
	case "":
		wanted = func(l *layout) bool { return !l.polled }
	case "map", "bytes":
		wanted = func(l *layout) bool { return !l.polled && l.stored == 0 }
	case "array":
		wanted = func(l *layout) bool { return l.stored > 0 }
	default:
		wanted = func(l *layout) bool { return l.name == format }
	}
	var names []string
	for i := range slices.Backward(layouts) {
		l := layouts[i]
		if l.kind != kind {
			continue
		}
		if wanted(&l) {
			l.bytes = format == "bytes"
			return l, nil
		}
		names = append(names, l.name)
	}
	if names == nil {
		return layout{}, fmt.Errorf("simserver: publish: expected a kind of engine that publishes events, got %q", kind)
	}
	return layout{}, fmt.Errorf("simserver: publish: format: expected one of %s for kind %s, got %q",
		strings.Join(names, ", "), kind, format)
}

// withDefaults fills in defaults and checks the rest. The server's are there already.
func (c PublishConfig) withDefaults(server *Config) (PublishConfig, error) {
	if server.Engine == nil || server.Engine.NoPrefixCaching {
		return c, errors.New("simserver: publish: expected an engine model with prefix caching")
	}
	l, err := findLayout(server.Kind, c.Format)
	if err != nil {
		return c, err
	}
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"buffer", &c.Buffer, 10000},
		{"high-water mark", &c.HWM, 100000},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 1 {
			return c, fmt.Errorf("simserver: publish: %s: expected at least 1, got %d", f.name, *f.value)
		}
	}
	switch {
	case l.polled && (c.Listen != "" || c.Connect != "" || c.Replay != ""):
		return c, fmt.Errorf("simserver: publish: expected no socket with the format %s", l.name)
	case !l.polled && (c.Listen == "") == (c.Connect == ""):
		return c, errors.New("simserver: publish: expected an address to listen at or one to connect to")
	}
	var ports []int
	for _, f := range []struct{ name, addr string }{{"listen", c.Listen}, {"connect", c.Connect}, {"replay", c.Replay}} {
		if f.addr == "" {
			continue
		}
		_, port, err := splitAddr(f.addr)
		if err == nil && port+server.Ranks-1 > maxPort {
			err = fmt.Errorf("expected a port with %d above it, got %d", server.Ranks-1, port)
		}
		if err == nil && port == 0 && f.name == "connect" {
			err = errors.New("expected a port, got 0")
		}
		if err != nil {
			return c, fmt.Errorf("simserver: publish: %s: %w", f.name, err)
		}
		ports = append(ports, port)
	}
	if c.Listen != "" && c.Replay != "" && ports[0] > 0 && ports[1] > 0 {
		if apart := max(ports[0], ports[1]) - min(ports[0], ports[1]); apart < server.Ranks {
			return c, fmt.Errorf("simserver: publish: replay: expected a port %d or more from %d for %d ranks, got %d",
				server.Ranks, ports[0], server.Ranks, ports[1])
		}
	}
	return c, nil
}

const maxPort = 65535

// splitAddr takes a host and port apart.
func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	if host == "*" {
		host = ""
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("expected a port from 0 to %d, got %q", maxPort, text)
	}
	return host, int(n), nil
}
