// Makes the certificates of a test cluster in one go. It reads a list of them as JSON from standard input:
//
//	{"folder": "/x/pki", "certificates": [{"name": "apiserver", "authority": "ca", "subject": "kube-apiserver",
//	  "groups": ["system:masters"], "hosts": ["localhost", "127.0.0.1"]}], "keys": ["sa"]}
//
// and writes NAME.crt and NAME.key into the folder. An authority is made when its files are not there yet.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

type leaf struct {
	Name      string   `json:"name"`
	Authority string   `json:"authority"`
	Subject   string   `json:"subject"`
	Groups    []string `json:"groups"`
	Hosts     []string `json:"hosts"`
}

type order struct {
	Folder       string   `json:"folder"`
	Certificates []leaf   `json:"certificates"`
	Keys         []string `json:"keys"`
}

type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func main() {
	var wanted order
	err := json.NewDecoder(os.Stdin).Decode(&wanted)
	if err == nil {
		err = wanted.make()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "certificates:", err)
		os.Exit(1)
	}
}

func (o order) make() error {
	authorities := map[string]*signer{}
	for _, wanted := range o.Certificates {
		authority := authorities[wanted.Authority]
		if authority == nil {
			var err error
			if authority, err = o.authority(wanted.Authority); err != nil {
				return err
			}
			authorities[wanted.Authority] = authority
		}
		if _, err := o.sign(wanted.Name, request(wanted), authority); err != nil {
			return err
		}
	}
	for _, name := range o.Keys {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := o.writeKey(name, key); err != nil {
			return err
		}
	}
	return nil
}

func (o order) path(name string) string { return filepath.Join(o.Folder, name) }

func (o order) authority(name string) (*signer, error) {
	certificate, errC := os.ReadFile(o.path(name + ".crt"))
	key, errK := os.ReadFile(o.path(name + ".key"))
	if errC == nil && errK == nil {
		return parse(certificate, key)
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "longboat-testbed-" + name},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:     true, BasicConstraintsValid: true,
	}
	return o.sign(name, template, nil)
}

func parse(certificate, key []byte) (*signer, error) {
	certificateBlock, _ := pem.Decode(certificate)
	keyBlock, _ := pem.Decode(key)
	if certificateBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("an authority's files are no PEM")
	}
	parsed, err := x509.ParseCertificate(certificateBlock.Bytes)
	if err != nil {
		return nil, err
	}
	parsedKey, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	return &signer{parsed, parsedKey}, err
}

func request(wanted leaf) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: wanted.Subject, Organization: wanted.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range wanted.Hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}

// Signs by the authority, or by the new key itself where there is none.
func (o order) sign(name string, template *x509.Certificate, authority *signer) (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	// Hosts of the tests may have a clock that is off by hours.
	template.NotBefore = time.Now().Add(-48 * time.Hour)
	template.NotAfter = time.Now().Add(365 * 24 * time.Hour)
	parent := signer{template, key}
	if authority != nil {
		parent = *authority
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, parent.certificate, &key.PublicKey, parent.key)
	if err != nil {
		return nil, err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	if err := os.WriteFile(o.path(name+".crt"), encoded, 0o644); err != nil {
		return nil, err
	}
	if err := o.writeKey(name, key); err != nil {
		return nil, err
	}
	made, err := x509.ParseCertificate(signed)
	return &signer{made, key}, err
}

func (o order) writeKey(name string, key *ecdsa.PrivateKey) error {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(o.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600)
}
