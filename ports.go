package stator

import (
	"net"
	"strconv"

	"github.com/stator-ai/stator/internal/metrics"
)

// metricsPort is where the series of a part are scraped.
type metricsPort struct {
	name string
	port int // 0 for none of its own
	part metrics.Part
}

func (p *MetricsPortsConfig) list() []metricsPort {
	return []metricsPort{
		{"worker", p.Worker, metrics.PartWorker},
		{"router", p.Router, metrics.PartRouter},
		{"processor", p.Processor, metrics.PartProcessor},
	}
}

// apart returns the parts that have a port.
func (p *MetricsPortsConfig) apart() (parts metrics.Part) {
	for _, m := range p.list() {
		if m.port != 0 {
			parts |= m.part
		}
	}
	return parts
}

// adminListen returns the address that the admin routes have.
func (c *Config) adminListen() string {
	if c.AdminListen != "" {
		return c.AdminListen
	}
	return c.Listen
}

// listenMetrics serves the series of the parts that have a port.
func (s *Server) listenMetrics() error {
	host, _, err := net.SplitHostPort(s.cfg.adminListen())
	if err != nil {
		return err
	}
	for _, m := range s.cfg.Metrics.Ports.list() {
		if m.port == 0 {
			continue
		}
		if _, err := s.listen(net.JoinHostPort(host, strconv.Itoa(m.port)), s.front.MetricsHandler(m.part)); err != nil {
			return err
		}
	}
	return nil
}
