package detect

import (
	"net/http/httptest"
	"testing"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/simserver"
)

// TestDressed runs each adapter against a simulated engine that looks like its own.
func TestDressed(t *testing.T) {
	for dress, kind := range map[simserver.Dress]string{
		simserver.DressVLLM: engine.VLLM, simserver.DressSGLang: engine.SGLang,
		simserver.DressTRTLLM: engine.TRTLLM, simserver.DressLlamaCpp: engine.LlamaCpp,
	} {
		t.Run(kind, func(t *testing.T) {
			sim, err := simserver.New(simserver.Config{Model: "m", Dress: dress, Ranks: 1})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(sim)
			t.Cleanup(srv.Close)
			info, err := open(t, srv.URL).Identify(t.Context())
			if err != nil || info.Kind != kind {
				t.Fatalf("identified as %+v, %v", info, err)
			}
			if m := info.Models[0]; kind != engine.TRTLLM && (m.BlockSize == 0 || m.TotalBlocks == 0 || m.ContextLength == 0 || m.Ranks != 1) {
				t.Errorf("model %+v", m)
			}
			enginetest.Dressed(t, open, srv.URL)
		})
	}
}
