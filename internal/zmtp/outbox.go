package zmtp

import (
	"net"
	"sync"
)

// writeBatch is how many messages go to the system in one call.
const writeBatch = 256

// outbox is what waits to be sent to one peer, and the goroutine that sends it.
type outbox struct {
	slots chan struct{} // one for each message that waits or is being written
	wake  chan struct{} // of size one: there is something to write

	mu    sync.Mutex
	queue [][]byte // encoded messages
	pong  []byte   // an encoded PONG, which passes the queue; the latest is enough
}

func newOutbox(hwm int) *outbox {
	return &outbox{slots: make(chan struct{}, hwm), wake: make(chan struct{}, 1)}
}

// offer takes a message, or reports that there are too many.
func (o *outbox) offer(msg []byte) bool {
	select {
	case o.slots <- struct{}{}:
		o.push(msg)
		return true
	default:
		return false
	}
}

// push queues a message that has a slot.
func (o *outbox) push(msg []byte) {
	o.mu.Lock()
	o.queue = append(o.queue, msg)
	o.mu.Unlock()
	o.signal()
}

// answer queues a PONG.
func (o *outbox) answer(context []byte) error {
	o.mu.Lock()
	o.pong = appendCommand(o.pong[:0:0], "PONG", context)
	o.mu.Unlock()
	o.signal()
	return nil
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes what is queued until the connection ends.
func (o *outbox) run(c *Conn) {
	var spare [][]byte
	for {
		select {
		case <-o.wake:
		case <-c.done:
			return
		}
		o.mu.Lock()
		queue := o.queue
		o.queue = spare[:0]
		o.mu.Unlock()
		if err := o.write(c.nc, queue); err != nil {
			c.fail(err)
			return
		}
		clear(queue)
		spare = queue
	}
}

// write writes messages, some at a time, and gives their slots back.
func (o *outbox) write(nc net.Conn, queue [][]byte) error {
	for {
		o.mu.Lock()
		pong := o.pong
		o.pong = nil
		o.mu.Unlock()
		if pong != nil {
			if _, err := nc.Write(pong); err != nil {
				return err
			}
		}
		if len(queue) == 0 {
			return nil
		}
		n := min(len(queue), writeBatch)
		batch := net.Buffers(queue[:n])
		if _, err := batch.WriteTo(nc); err != nil {
			return err
		}
		for range n {
			<-o.slots
		}
		queue = queue[n:]
	}
}

// serve runs the outbox of a connection while read reads from it.
func (o *outbox) serve(c *Conn, read func()) {
	c.pong = o.answer
	var wg sync.WaitGroup
	wg.Go(func() { o.run(c) })
	read()
	c.Close()
	wg.Wait()
}
