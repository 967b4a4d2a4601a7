package relaytest

// Behaviour is how a relay answers. The numbers are those of
// farm-behaviours.tsv.
type Behaviour uint8

// The behaviours. Those named TLS… act on wss only and are healthy on ws.
const (
	Healthy        Behaviour = 1  // NIP-11, EVENT and EOSE
	Slow           Behaviour = 2  // every reply Options.Slow late
	Reset          Behaviour = 3  // RST after accept
	Silent         Behaviour = 4  // accepts and says nothing
	HTTP502        Behaviour = 5  // to everything
	HTTP403        Behaviour = 6  // to everything
	HTTP429        Behaviour = 7  // to everything, Retry-After: 120
	CloseAtOnce    Behaviour = 8  // upgrade, then close frame 1008
	DropAtOnce     Behaviour = 9  // upgrade, then TCP close
	AuthRequired   Behaviour = 10 // AUTH, then CLOSED auth-required to REQ
	RateLimited    Behaviour = 11 // CLOSED rate-limited to REQ
	GarbageText    Behaviour = 12 // text that is no JSON
	GarbageFrame   Behaviour = 13 // bytes that are no frame
	HugeInfo       Behaviour = 14 // NIP-11 of 50 MB
	Drip           Behaviour = 15 // HTTP heads one byte each Options.Drip
	NoEOSE         Behaviour = 16 // EVENT, never EOSE
	Flood          Behaviour = 17 // endless EVENTs
	Redirect       Behaviour = 18 // 301 to Options.RedirectTo
	AuthGreeting   Behaviour = 19 // AUTH, answers all the same
	NoticeOnly     Behaviour = 20 // NOTICE to REQ
	WrongAccept    Behaviour = 21 // 101 with a wrong accept key
	NoInfo         Behaviour = 22 // NIP-11 is a 404
	BrokenInfo     Behaviour = 23 // NIP-11 is broken JSON
	HTMLInfo       Behaviour = 24 // NIP-11 is HTML
	WriteBlocked   Behaviour = 25 // OK false blocked to EVENT
	HugeFrame      Behaviour = 26 // announces 1 GiB and begins to send it
	PaymentInfo    Behaviour = 27 // NIP-11 demands payment
	Pings          Behaviour = 28 // 50 pings before EOSE
	Fragments      Behaviour = 29 // EOSE in fragments
	TLSExpired     Behaviour = 30 // expired certificate
	TLSUnknownCA   Behaviour = 31 // self-signed certificate
	TLSWrongName   Behaviour = 32 // certificate for other.example.com
	TLSStall       Behaviour = 33 // accepts, never handshakes
	TLSAlert       Behaviour = 34 // alert handshake_failure
	TLSSoonExpired Behaviour = 35 // certificate of three more days
	Flappy         Behaviour = 36 // every other connection is answered 502
	SlowEOSE       Behaviour = 37 // EOSE after 10 × Options.Slow
	MixedInfo      Behaviour = 38 // NIP-11 with numbers and lists in retention.kinds
	Mute           Behaviour = 39 // upgrade, then silence

	// Beyond the table.
	InfoCloses  Behaviour = 60 // healthy, but closes the connection after NIP-11
	InfoMoved   Behaviour = 61 // healthy, NIP-11 is redirected to Options.RedirectTo
	TLSHybrid   Behaviour = 62 // accepts the hybrid key exchange only
	EndlessInfo Behaviour = 63 // NIP-11 in chunks without end
	HeadFlood   Behaviour = 64 // an HTTP head without end
	ResetLater  Behaviour = 65 // upgrade, then RST
	TLSMutual   Behaviour = 66 // wants a certificate of the client
)
