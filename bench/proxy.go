package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The baselines that this program runs as, when its first argument is proxyCommand.
const (
	proxyCommand = "proxy"
	kindReverse  = "reverse"
	kindCopy     = "copy"
	kindBare     = "bare"
	kindPublish  = "publish"
	kindClocked  = "clocked"
)

// serveProxy is the program's life as a baseline: it serves a proxy of the given
// kind in front of target, or what is in the file target, until it is killed.
func serveProxy(kind, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	var h http.Handler
	switch kind {
	case kindReverse:
		h = fullDuplex(reverseProxy(u))
	case kindCopy:
		h = fullDuplex(copyProxy(u))
	case kindBare:
		if h, err = bareHandler(target); err != nil {
			return err
		}
	case kindPublish:
		if h, err = publishHandler(target); err != nil {
			return err
		}
	case kindClocked:
		if h, err = clockedHandler(context.Background(), target); err != nil {
			return err
		}
	default:
		return fmt.Errorf("proxy: kind: expected %s, %s, %s, %s or %s, got %q",
			kindReverse, kindCopy, kindBare, kindPublish, kindClocked, kind)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("%s%s\n", greeting, l.Addr())
	srv := &http.Server{Handler: h}
	if kind == kindBare {
		srv.ReadHeaderTimeout = 10 * time.Second // the handlers are compared, not the servers
	}
	return srv.Serve(l)
}

// fullDuplex lets a proxy go on reading a request's body after its answer has
// begun. Without it the server closes the body at that moment, and where the
// transport has yet to see the end of a body that it has sent, it takes this for a
// failure and breaks the answer off: rare, but sure to happen among thousands of
// streams.
func fullDuplex(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// startProxy runs this program as a baseline in front of the engine at addr.
func startProxy(ctx context.Context, name, kind, addr string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, name, self, proxyCommand, kind, "http://"+addr)
}

// transport keeps as many connections as there are requests at a time, so that a
// baseline does not pay for dialling.
func transport() *http.Transport {
	return &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4096}
}

// reverseProxy is the standard library's proxy as it comes. It flushes event
// streams at once by itself; asking for that on every answer would only make it
// slower.
func reverseProxy(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport(),
	}
}

// copyProxy forwards the request and copies the answer, flushing after each read:
// about the least that a proxy for streams can do on net/http.
func copyProxy(target *url.URL) http.Handler {
	t := transport()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Host = target.Scheme, target.Host, ""
		resp, err := t.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		if _, err := io.Copy(flushWriter{w, http.NewResponseController(w)}, resp.Body); err != nil {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
	})
}

// flushWriter flushes after each write.
type flushWriter struct {
	w   io.Writer
	out *http.ResponseController
}

func (f flushWriter) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.out.Flush()
}

// errNoNginx says that there is none to compare with.
var errNoNginx = errors.New("nginx: not installed")

// nginxConf runs as a single process, so that its CPU clock is the whole story.
// The arguments are a directory, the engine's address and the address to listen on.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/pid;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 0;
	client_body_buffer_size 1m;
	keepalive_requests 1000000000;
	upstream engine {
		server %[2]s;
		keepalive 256;
		keepalive_requests 1000000000;
	}
	server {
		listen %[3]s;
		location / {
			proxy_pass http://engine;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
		}
	}
}
`

// startNginx runs nginx in front of the engine at addr, with its files in a
// directory under dir. It returns errNoNginx where nginx is not installed.
func startNginx(ctx context.Context, dir, addr string) (*process, error) {
	exe, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNoNginx
	}
	if dir, err = os.MkdirTemp(dir, "nginx"); err != nil {
		return nil, err
	}
	listen, err := freePort()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, addr, listen), 0o600); err != nil {
		return nil, err
	}
	return startAt(ctx, "nginx", listen, exe, "-p", dir, "-c", conf, "-e", "stderr")
}
