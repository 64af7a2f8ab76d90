package gitobject

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/pjbgf/sha1cd"
	"github.com/stega/pgque-vendor/internal/fault"
)

// The first 320 bytes of the published SHAttered pair, as two files with one
// SHA-1 begin. No collision behind one of git's headers is public, so the test
// makes a Hasher without NewHasher, where the header is free.
const shattered = `
255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033203020522f547970652034203020522f
537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163652037203020522f4c656e6774682038203020522f42697473506572
436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d3120697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01
7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5df45c14f26fedfb3dc38e96ac22fe7bd728f0e45bce046d2
3c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500eb4ddc0decc1a864790c782c76215660dd309791d06bd0af3f98cda4bc4629b1`

func TestCollisionAttackIsSeen(t *testing.T) {
	t.Parallel()
	data, err := hex.DecodeString(strings.ReplaceAll(shattered, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	sum := func(content []byte) (ID, error) {
		h := &Hasher{hash: sha1cd.New().(sha1cd.CollisionResistantHash)}
		h.Write(data[:10])
		h.Write(content)
		return h.ID()
	}
	if id, err := sum(data[10:]); !fault.Is(err, fault.Integrity) {
		t.Errorf("the id is %q, %v, without a word about the attack", id, err)
	}
	if id, err := sum(data[11:]); err != nil || len(id) != 40 {
		t.Errorf("the id is %q, %v", id, err)
	}
}
