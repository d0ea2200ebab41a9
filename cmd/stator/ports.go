package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator"
)

// usualPorts are where Dynamo's collectors look for workers, router and processor.
const usualPorts = "8081,8082,8083"

// addMetricsPorts declares the flag for the ports of metrics.
func (s *settings) addMetricsPorts() {
	f := s.addParsed("metrics-ports", "metrics.ports",
		"serve the metrics of worker, router and processor on `PORTS` of their own, and no more on /metrics", parseMetricsPorts)
	f.flag.NoOptDefVal = usualPorts
	// Since it needs no value, one after a space is an argument.
	check := s.cmd.Args
	s.cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && f.text == usualPorts && strings.Trim(args[0], "0123456789,") == "" {
			return &usageError{err: fmt.Errorf("unexpected argument %q: the ports come after =, as in --metrics-ports=%s", args[0], usualPorts), hint: true}
		}
		return check(cmd, args)
	}
}

// parseMetricsPorts reads three ports, of which 0 is none.
func parseMetricsPorts(text string) (any, error) {
	var ports []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			break
		}
		ports = append(ports, int(n))
	}
	if len(ports) != 3 || strings.Count(text, ",") != 2 {
		return nil, fmt.Errorf("expected the ports of worker, router and processor such as %s, got %q", usualPorts, text)
	}
	return several{
		{key: "metrics.ports.worker", value: ports[0]},
		{key: "metrics.ports.router", value: ports[1]},
		{key: "metrics.ports.processor", value: ports[2]},
	}, nil
}

// listenFlag returns the flag that changes an address.
func listenFlag(addr string, cfg *stator.Config) string {
	if cfg == nil || addr == cfg.Listen {
		return "--listen"
	}
	if addr == cfg.AdminListen {
		return "--admin-listen"
	}
	_, text, _ := net.SplitHostPort(addr)
	p := cfg.Metrics.Ports
	if n, err := strconv.Atoi(text); err == nil && n != 0 && (n == p.Worker || n == p.Router || n == p.Processor) {
		return "--metrics-ports"
	}
	return "--listen"
}

// greetMetrics says which metrics have a port of their own.
func greetMetrics(w io.Writer, p stator.MetricsPortsConfig) {
	var apart []string
	for _, part := range []struct {
		name string
		port int
	}{{"worker", p.Worker}, {"router", p.Router}, {"processor", p.Processor}} {
		if part.port != 0 {
			apart = append(apart, fmt.Sprintf("%s :%d", part.name, part.port))
		}
	}
	if len(apart) > 0 {
		fmt.Fprintf(w, "metrics apart: %s\n", strings.Join(apart, ", "))
	}
}
