package main

import (
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/stator-ai/stator/internal/zmtp"
)

// The routes of a process that publishes events: where it does, and what it is to
// publish now. The answer to the latter is how many messages were dropped.
const (
	pathEvents = "/events"
	pathFill   = "/fill"
	pathLap    = "/lap"
)

// publishing is a process's life as the publisher of an engine.
type publishing struct {
	work *eventWorkload
	pub  *zmtp.Publisher
	next uint64 // number of the next batch; requests come one at a time
}

// publishHandler opens a publisher for the workload in a file.
func publishHandler(file string) (http.Handler, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &publishing{work: new(eventWorkload)}
	if err := gob.NewDecoder(f).Decode(p.work); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	// What is measured is how soon everything is taken in, not how much gets lost.
	hwm := len(p.work.Fill) + len(p.work.Lap)
	if p.pub, err = zmtp.ListenPub("127.0.0.1:0", zmtp.PubOptions{HWM: hwm}); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(pathEvents, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.pub.Addr()) })
	mux.HandleFunc(pathFill, p.publish(p.work.Fill))
	mux.HandleFunc(pathLap, p.publish(p.work.Lap))
	return mux, nil
}

// publish sends payloads as fast as it can once there is somebody to send them to.
func (p *publishing) publish(payloads [][]byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := p.pub.Wait(r.Context(), 1); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, payload := range payloads {
			p.pub.Publish([]byte("kv-events"), binary.BigEndian.AppendUint64(nil, p.next), payload)
			p.next++
		}
		fmt.Fprint(w, p.pub.Dropped())
	}
}

// publisher is such a process. The caller must stop it.
type publisher struct {
	*process
	events string // host:port
}

// startPublisher runs this program as the publisher of a workload.
func startPublisher(ctx context.Context, dir string, w *eventWorkload) (*publisher, error) {
	file := filepath.Join(dir, "events")
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(gob.NewEncoder(f).Encode(w), f.Close()); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	proc, err := start(ctx, "publisher", self, proxyCommand, kindPublish, file)
	if err != nil {
		return nil, err
	}
	addr, err := proc.get(ctx, pathEvents)
	if err != nil {
		proc.stop()
		return nil, err
	}
	return &publisher{process: proc, events: string(addr)}, nil
}
