package gitobject

import (
	"bytes"
	"encoding/hex"
	"strconv"

	"github.com/pjbgf/sha1cd"
	"github.com/stega/pgque-vendor/internal/fault"
)

// The types of git's objects, as their header spells them.
const (
	TypeBlob   = "blob"
	TypeTree   = "tree"
	TypeCommit = "commit"
	TypeTag    = "tag"
)

// BlobID returns the id that git gives a file with these bytes.
func BlobID(data []byte) (ID, error) { return ObjectID(TypeBlob, data) }

// CommitID returns the id of a commit from its raw content.
func CommitID(raw []byte) (ID, error) { return ObjectID(TypeCommit, raw) }

// TagID returns the id of an annotated tag's object from its raw content.
func TagID(raw []byte) (ID, error) { return ObjectID(TypeTag, raw) }

// ObjectID returns the id of an object of a type (TypeBlob, …) from its raw
// content, without git's header. It fails as Hasher.ID does.
func ObjectID(objectType string, raw []byte) (ID, error) {
	h := NewHasher(objectType, int64(len(raw)))
	h.hash.Write(raw)
	return h.ID()
}

// Hasher computes an object's id while its raw content is written to it.
type Hasher struct {
	hash       sha1cd.CollisionResistantHash
	objectType string
	size       int64
}

// NewHasher begins an object of a type (TypeBlob, …) whose raw content, without
// git's header, has size bytes: the header, which is hashed first, holds it.
func NewHasher(objectType string, size int64) *Hasher {
	h := &Hasher{sha1cd.New().(sha1cd.CollisionResistantHash), objectType, size}
	h.hash.Write([]byte(objectType + " " + strconv.FormatInt(size, 10) + "\x00"))
	return h
}

// Write hashes more of the content. It never fails.
func (h *Hasher) Write(content []byte) (int, error) { return h.hash.Write(content) }

// ID returns the id of what was written. SHA-1 can be made to collide, so the
// hash is one that recognises the traces which a collision attack leaves: such
// content has no id that proves anything, and the failure is fault.Integrity.
func (h *Hasher) ID() (ID, error) {
	digest, collision := h.hash.CollisionResistantSum(nil)
	if collision {
		return "", fault.New(fault.Integrity, "a %s of %d bytes carries a SHA-1 collision attack", h.objectType, h.size)
	}
	return ID(hex.EncodeToString(digest)), nil
}

// ParseCommit returns the root tree that a commit names, from the commit's raw
// content.
func ParseCommit(raw []byte) (tree ID, err error) {
	value, _, ok := headerLine(raw, "tree")
	if !ok {
		return "", fault.New(fault.Integrity, "a commit object does not begin with its tree")
	}
	return ParseID(value)
}

// ParseTag returns what an annotated tag's object points at and the type of
// that (TypeCommit, or TypeTag for a tag of a tag), from the tag's raw content.
func ParseTag(raw []byte) (object ID, objectType string, err error) {
	value, rest, ok := headerLine(raw, "object")
	if !ok {
		return "", "", fault.New(fault.Integrity, "a tag object does not begin with the object it points at")
	}
	object, err = ParseID(value)
	if err != nil {
		return "", "", err
	}
	objectType, _, ok = headerLine(rest, "type")
	if !ok {
		return "", "", fault.New(fault.Integrity, "a tag object does not say the type of the object it points at")
	}
	switch objectType {
	case TypeBlob, TypeTree, TypeCommit, TypeTag:
		return object, objectType, nil
	}
	return "", "", fault.New(fault.Integrity, "a tag object points at an object of the unknown type %q", clip(objectType))
}

// headerLine returns the value of a line "key value" at the start of raw, and
// what follows the line.
func headerLine(raw []byte, key string) (value string, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(raw, []byte("\n"))
	if !ok {
		return "", nil, false
	}
	v, ok := bytes.CutPrefix(line, []byte(key+" "))
	return string(v), rest, ok
}
