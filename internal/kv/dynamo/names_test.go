package dynamo

import "testing"

func TestNames(t *testing.T) {
	c := Component{Namespace: "dynamo", Name: "backend"}
	odd := Component{Namespace: "My_Team", Name: "vLLM.decode"}
	for _, tc := range []struct{ name, got, want string }{
		{"stream", c.Stream(), "namespace-dynamo-component-backend-kv-events"},
		{"stream subject", c.StreamSubject(), "namespace-dynamo-component-backend-kv-events.kv-events"},
		{"bucket", c.Bucket(), "namespace-dynamo-component-backend-radix-bucket"},
		{"NATS Core subject", c.Subject(), "namespace.dynamo.component.backend.kv-events"},
		{"stream of odd names", odd.Stream(), "namespace-my-team-component-vllm-decode-kv-events"},
		{"bucket of odd names", odd.Bucket(), "namespace-my-team-component-vllm-decode-radix-bucket"},
		{"subject of odd names", odd.Subject(), "namespace.My_Team.component.vLLM.decode.kv-events"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %q, want %q", tc.got, tc.want)
			}
		})
	}
}

func TestSlug(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"a.B c-d_9", "a_b_c-d_9"},
		{"_.x_", "x_"},
		{"...", ""},
		{"", ""},
		{"né", "n_"},
		{"漢字", ""},
		{"a漢字b", "a__b"},
		{"İz", "i_z"},
		{"\u212a", "k"}, // the sign of kelvin
	} {
		t.Run(tc.in, func(t *testing.T) {
			if got := Slug(tc.in); got != tc.want {
				t.Errorf("Slug(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}
