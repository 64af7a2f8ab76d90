package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// A software bill of materials says of the vendored PgQue what SOURCE.json
// says of it: nothing is read from the files or guessed, so no licence is
// named; the LICENSE and NOTICE beside the SQL are the ones to read.

// cycloneDX is a document of CycloneDX 1.5.
type cycloneDX struct {
	Format     string               `json:"bomFormat"`
	Spec       string               `json:"specVersion"`
	Version    int                  `json:"version"`
	Components []cycloneDXComponent `json:"components"`
}

type cycloneDXComponent struct {
	Type       string               `json:"type"`
	Ref        string               `json:"bom-ref,omitempty"`
	Name       string               `json:"name"`
	Version    string               `json:"version,omitempty"`
	Hashes     []cycloneDXHash      `json:"hashes,omitempty"`
	PURL       string               `json:"purl,omitempty"`
	References []cycloneDXReference `json:"externalReferences,omitempty"`
	Components []cycloneDXComponent `json:"components,omitempty"`
}

type cycloneDXHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type cycloneDXReference struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// spdx is a document of SPDX 2.3.
type spdx struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID               string         `json:"SPDXID"`
	Name             string         `json:"name"`
	Version          string         `json:"versionInfo"`
	FileName         string         `json:"packageFileName,omitempty"`
	Location         string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	Copyright        string         `json:"copyrightText"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	References       []spdxExternal `json:"externalRefs,omitempty"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// billOfMaterials describes what SOURCE.json pins in one of the two formats.
func billOfMaterials(format string, src *vendorfile.Source, now time.Time) (any, error) {
	switch format {
	case "cyclonedx":
		return newCycloneDX(src), nil
	case "spdx":
		return newSPDX(src, now), nil
	}
	return nil, fault.New(fault.Usage, "--sbom is %q: it takes cyclonedx or spdx", format)
}

// packageURL names the vendored revision as package URLs do: GitHub's names in
// lower case, pinned by the commit.
func packageURL(src *vendorfile.Source) string {
	return fmt.Sprintf("pkg:github/%s@%s", strings.ToLower(src.Repository), src.Commit)
}

func repositoryURL(src *vendorfile.Source) string {
	return "https://github.com/" + src.Repository
}

func projectName(src *vendorfile.Source) string {
	_, name, _ := strings.Cut(src.Repository, "/")
	return name
}

func newCycloneDX(src *vendorfile.Source) cycloneDX {
	var files []cycloneDXComponent
	for _, name := range vendoredNames {
		files = append(files, cycloneDXComponent{
			Type:   "file",
			Name:   name,
			Hashes: []cycloneDXHash{{"SHA-256", src.Files[name].SHA256}},
		})
	}
	purl := packageURL(src)
	return cycloneDX{
		Format:  "CycloneDX",
		Spec:    "1.5",
		Version: 1,
		Components: []cycloneDXComponent{{
			Type:       "library",
			Ref:        purl,
			Name:       projectName(src),
			Version:    src.Tag,
			PURL:       purl,
			References: []cycloneDXReference{{"vcs", repositoryURL(src)}},
			Components: files,
		}},
	}
}

// newSPDX describes each file as a package of one file: SPDX wants a SHA-1 of
// what it calls a file, and SOURCE.json has none.
func newSPDX(src *vendorfile.Source, now time.Time) spdx {
	const whole = "SPDXRef-Package"
	location := fmt.Sprintf("git+%s@%s", repositoryURL(src), src.Commit)
	describe := func(id, name string) spdxPackage {
		const unknown = "NOASSERTION"
		return spdxPackage{
			ID:               id,
			Name:             name,
			Version:          src.Tag,
			Location:         location,
			LicenseConcluded: unknown,
			LicenseDeclared:  unknown,
			Copyright:        unknown,
		}
	}
	pkg := describe(whole, projectName(src))
	pkg.References = []spdxExternal{{"PACKAGE-MANAGER", "purl", packageURL(src)}}
	doc := spdx{
		Version:       "SPDX-2.3",
		DataLicense:   "CC0-1.0",
		ID:            "SPDXRef-DOCUMENT",
		Name:          projectName(src) + "-" + src.Tag,
		Namespace:     fmt.Sprintf("%s/spdx/%s/%s", repositoryURL(src), src.Commit, src.Files[vendorfile.SQLName].SHA256),
		Creation:      spdxCreation{now.UTC().Format(time.RFC3339), []string{"Tool: pgque-vendor"}},
		Packages:      []spdxPackage{pkg},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", whole}},
	}
	for _, name := range vendoredNames {
		file := describe("SPDXRef-"+name, name)
		file.FileName = "./" + src.Files[name].Path
		file.Location += "#" + src.Files[name].Path
		file.Checksums = []spdxChecksum{{"SHA256", src.Files[name].SHA256}}
		doc.Packages = append(doc.Packages, file)
		doc.Relationships = append(doc.Relationships, spdxRelationship{whole, "CONTAINS", file.ID})
	}
	return doc
}
