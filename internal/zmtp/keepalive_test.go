//go:build unix

package zmtp

import (
	"net"
	"syscall"
	"testing"
)

// A peer whose machine is gone says nothing; the system asks, on both sides.
func TestKeepAlive(t *testing.T) {
	checkLeaks(t)
	p := listenPub(t, PubOptions{})
	c := dialSub(t, p.Addr())
	wait(t, p, 1)
	p.socket.mu.Lock()
	conns := []*Conn{c}
	for served := range p.socket.mu.conns {
		conns = append(conns, served)
	}
	p.socket.mu.Unlock()
	for _, c := range conns {
		raw, err := c.nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if on, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE); on == 0 || err != nil {
				t.Errorf("keep-alive is %d, %v", on, err)
			}
		})
	}
	if len(conns) != 2 {
		t.Errorf("%d connections", len(conns))
	}
}
