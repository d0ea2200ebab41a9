package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// exchangeWait bounds one request and its answer, so that a proxy that holds
// something back fails instead of hanging.
const exchangeWait = time.Minute

// model is the name of the model that the simulated engines serve; short, so that
// a small request is small.
const model = "m"

// conn is a client's keep-alive connection. It is not safe for concurrent use.
type conn struct {
	nc    net.Conn
	br    *bufio.Reader
	reads int // reads of the socket that brought something
}

func dial(ctx context.Context, addr string) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc}
	c.br = bufio.NewReader(c)
	return c, nil
}

// Read reads from the socket and counts.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.nc.Read(b)
	if n > 0 {
		c.reads++
	}
	return n, err
}

func (c *conn) close() { c.nc.Close() }

// send writes a request as [chatRequest] makes it and returns the head of the
// answer. The body must be read to its end before the next request.
func (c *conn) send(request []byte) (*http.Response, error) {
	if err := c.nc.SetDeadline(time.Now().Add(exchangeWait)); err != nil {
		return nil, err
	}
	if _, err := c.nc.Write(request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("expected status 200, got %d: %s", resp.StatusCode, bytes.TrimSpace(body))
	}
	return resp, nil
}

// roundTrip sends a request and appends the answer's body to dst.
func (c *conn) roundTrip(dst, request []byte) ([]byte, error) {
	resp, err := c.send(request)
	if err != nil {
		return dst, err
	}
	out := bytes.NewBuffer(dst)
	_, err = out.ReadFrom(resp.Body)
	return out.Bytes(), err
}

// chatRequest returns a chat request with the given body, head included.
func chatRequest(body []byte) []byte {
	b := []byte("POST /v1/chat/completions HTTP/1.1\r\n" +
		"Host: bench\r\n" +
		"User-Agent: bench\r\n" +
		"Accept: application/json\r\n" +
		"Content-Type: application/json\r\n" +
		"Content-Length: ")
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}
