package kv

import "testing"

func TestTierNames(t *testing.T) {
	for tier := Device; tier < NumTiers; tier++ {
		if got, ok := ParseTier(tier.String()); !ok || got != tier {
			t.Errorf("ParseTier(%q) = %v, %v; want %v", tier.String(), got, ok, tier)
		}
	}
	for _, name := range []string{"", "Device", "GPU", "tier 4"} {
		if got, ok := ParseTier(name); ok {
			t.Errorf("ParseTier(%q) = %v, want none", name, got)
		}
	}
	if got := Tier(4).String(); got != "tier 4" {
		t.Errorf("Tier(4) is %q", got)
	}
}

func TestParseMedium(t *testing.T) {
	rows := map[Tier][]string{
		Device:   {"", "GPU", "DEVICE"},
		Host:     {"CPU", "CPU_PINNED", "CPU_TIER1"},
		Disk:     {"CPU_TIER2", "DISK", "NVME", "STORAGE"},
		External: {"EXTERNAL", "NETWORK", "REMOTE", "SHARED"},
	}
	for want, media := range rows {
		for _, medium := range media {
			if got, ok := ParseMedium(medium); !ok || got != want {
				t.Errorf("ParseMedium(%q) = %v, %v; want %v", medium, got, ok, want)
			}
		}
	}
	for _, medium := range []string{"FS", "OBJ", "device", "GPU "} {
		if got, ok := ParseMedium(medium); ok {
			t.Errorf("ParseMedium(%q) = %v, want none", medium, got)
		}
	}
}

func TestKindNames(t *testing.T) {
	for kind, want := range map[Kind]string{Stored: "stored", Removed: "removed", Cleared: "cleared", 0: "kind 0"} {
		if got := kind.String(); got != want {
			t.Errorf("Kind(%d) is %q, want %q", kind, got, want)
		}
	}
}
