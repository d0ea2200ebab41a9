package indexserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// firstByte is how long another server may take to begin its answer.
const firstByte = 10 * time.Second

// patience is how long another server may say that it is busy.
const patience = 2 * time.Minute

// busyError is the answer of a server that wants to be asked again.
type busyError struct {
	error
	after time.Duration
}

// OpenDump asks another server for its dump. The URL is that of the server, or of a
// dump. It waits ten seconds for the answer to begin, two minutes for a server that
// says it is busy, and reads fail when nothing comes for half a minute, or too little
// for longer. The caller closes what it returns.
func OpenDump(ctx context.Context, server string) (io.ReadCloser, error) {
	for begun := time.Now(); ; {
		d, err := openDump(ctx, server)
		busy, ok := errors.AsType[*busyError](err)
		if !ok {
			return d, err
		}
		if time.Since(begun)+busy.after > patience {
			return nil, err
		}
		select {
		case <-time.After(busy.after):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func openDump(ctx context.Context, server string) (io.ReadCloser, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if u.Path = strings.TrimSuffix(u.Path, "/"); u.Path == "" {
		u.Path = "/dump"
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	alarm := time.AfterFunc(firstByte, func() { cancel(fmt.Errorf("%s: no answer within %s", u.Redacted(), firstByte)) })
	client := &http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       (&net.Dialer{Timeout: firstByte}).DialContext,
		DisableKeepAlives: true,
	}}
	resp, err := client.Do(req.WithContext(ctx))
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("%s: expected a dump, got status %s", u.Redacted(), resp.Status)
		if resp.StatusCode == http.StatusServiceUnavailable {
			seconds, convErr := strconv.Atoi(resp.Header.Get("Retry-After"))
			if convErr != nil {
				seconds = 1
			}
			err = &busyError{err, time.Duration(min(max(seconds, 0), 10)) * time.Second}
		}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		alarm.Stop()
		cancel(nil)
		return nil, err
	}
	return &remoteDump{body: resp.Body, ctx: ctx, cancel: cancel, alarm: alarm, from: u.Redacted()}, nil
}

// remoteDump is an answer that has to keep coming.
type remoteDump struct {
	body   io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	alarm  *time.Timer
	from   string
	begun  bool
	pace   pace
}

// Read reads the dump.
func (d *remoteDump) Read(b []byte) (int, error) {
	now := time.Now()
	if d.begun { // until then the time for the first byte runs
		left := d.pace.left()
		d.alarm = time.AfterFunc(left, func() {
			if left < stall {
				d.cancel(fmt.Errorf("%s: less came than %d bytes a second", d.from, minRate))
			} else {
				d.cancel(fmt.Errorf("%s: nothing came for %s", d.from, stall))
			}
		})
	}
	n, err := d.body.Read(b)
	d.alarm.Stop()
	d.pace.count(n, now)
	d.begun = true
	if err != nil && err != io.EOF {
		if cause := context.Cause(d.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close ends the request.
func (d *remoteDump) Close() error {
	d.alarm.Stop()
	d.cancel(nil)
	return d.body.Close()
}
