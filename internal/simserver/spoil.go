package simserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/openai"
)

// strike decides what goes wrong with a request for text. It reports true when that was
// all and the request is over; otherwise the fault, if there is one, is for the answer.
func (s *Server) strike(w http.ResponseWriter) (Fault, bool) {
	if !s.faults.some.Load() {
		return Fault{}, false
	}
	if _, hit := s.faults.turn(FaultRestart); hit {
		s.Restart()
		s.reset(w, false)
		return Fault{}, true
	}
	if _, hit := s.faults.turn(FaultKill); hit {
		s.reset(w, false)
		return Fault{}, true
	}
	if f, hit := s.faults.turn(FaultStatus); hit {
		s.fail(w, &apiError{status: f.Status, message: http.StatusText(f.Status)})
		return Fault{}, true
	}
	if _, hit := s.faults.turn(FaultContext); hit {
		s.fail(w, s.tooLong(s.cfg.ContextLength))
		return Fault{}, true
	}
	var plan Fault
	for _, kind := range []FaultKind{FaultReset, FaultHalfClose, FaultHang, FaultError, FaultGarble} {
		if f, hit := s.faults.turn(kind); hit && plan.Kind == "" {
			plan = f
		}
	}
	return plan, false
}

// reset closes the connection under a response with a reset. What was written goes out
// before, if the response has begun; otherwise there is none.
func (s *Server) reset(w http.ResponseWriter, begun bool) {
	conn := takeOver(w, begun)
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// takeOver returns the connection under a response, which the server has nothing to do
// with from then on. Where that cannot be had the response ends here.
func takeOver(w http.ResponseWriter, begun bool) net.Conn {
	out := http.NewResponseController(w)
	if begun {
		out.Flush()
	}
	conn, _, err := out.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return conn
}

// halfClose ends what is sent on the connection under a response without an end of the
// response, and waits until the other side hangs up.
func (s *Server) halfClose(w http.ResponseWriter, begun bool) {
	conn := takeOver(w, begun)
	defer conn.Close()
	tcp, ok := conn.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil {
		return
	}
	defer context.AfterFunc(s.life.now.Load().ctx, func() { conn.Close() })()
	io.Copy(io.Discard, conn)
}

// spoil is where a fault strikes an answer: the event to be sent is not, or not as it
// should be. It reports whether the answer goes on.
func (a *answer) spoil(w http.ResponseWriter) bool {
	s, f := a.server, a.fault
	a.fault = Fault{}
	switch f.Kind {
	case FaultReset:
		s.reset(w, true)
	case FaultHalfClose:
		s.halfClose(w, true)
	case FaultHang:
		a.out.Flush()
		a.hang()
	case FaultError:
		a.failStream(w, &apiError{status: http.StatusInternalServerError, message: "the engine failed while it wrote the answer"})
	case FaultGarble:
		if i := len(a.event) / 2; i > len("data: ") {
			a.event = append(a.event[:i], "\n\n"...)
		}
		return true
	}
	return false
}

// spoilWhole is where a fault strikes an answer that is not streamed, whose body is
// a.json. It reports whether the answer goes out all the same.
func (a *answer) spoilWhole(w http.ResponseWriter) bool {
	s, f := a.server, a.fault
	a.fault = Fault{}
	half := a.json[:len(a.json)/2]
	switch f.Kind {
	case FaultReset, FaultHalfClose:
		if f.After > 0 {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(a.json)))
			w.Write(half)
		}
		if f.Kind == FaultReset {
			s.reset(w, f.After > 0)
		} else {
			s.halfClose(w, f.After > 0)
		}
	case FaultHang:
		a.hang()
	case FaultError:
		s.fail(w, &apiError{status: http.StatusInternalServerError, message: "the engine failed while it wrote the answer"})
	case FaultGarble:
		a.json = half
		return true
	default:
		return true
	}
	return false
}

// hang waits until the client has gone, or the engine.
func (a *answer) hang() {
	select {
	case <-a.gone:
	case <-a.server.life.Done():
		panic(http.ErrAbortHandler)
	}
}

// failStream ends a stream with an error, as the engine does.
func (a *answer) failStream(w http.ResponseWriter, e *apiError) {
	f := a.server.face
	b, ok := f.appendStreamError(a.json[:0], e)
	if !ok {
		a.out.Flush()
		panic(http.ErrAbortHandler)
	}
	w.Write(openai.AppendData(a.event[:0], b))
	if f.traits().doneAfterError {
		w.Write(openai.Done)
	}
}
