package mqtt

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"sluice/collector/pack"
)

// senmlPayload is p's body with three more members in its first record. RFC
// 8428, section 4.4 has consumers ignore members they do not know.
func senmlPayload(epoch uint64, p pack.Pack) []byte {
	dst := make([]byte, 0, len(p.Body)+128)
	dst = append(dst, "[{"...)
	dst = appendRange(dst, epoch, p)
	return append(append(dst, ','), p.Body[len("[{"):]...)
}

// asidePayload is a JSON object that holds what is not one whole SenML pack: a
// segment that could not be decoded, or a part of a pack.
func asidePayload(epoch uint64, p pack.Pack) []byte {
	dst := make([]byte, 0, len(p.Body)*4/3+256)
	dst = append(dst, '{')
	dst = appendRange(dst, epoch, p)
	dst = fmt.Appendf(dst, `,"part":%d,"parts":%d,"content_type":%s`, p.Part, p.Parts, quote(p.ContentType()))
	if p.Unreadable {
		dst = fmt.Appendf(dst, `,"reason":%s`, quote(p.Reason))
	}
	dst = append(dst, `,"data":"`...)
	dst = base64.RawURLEncoding.AppendEncode(dst, p.Body)
	return append(dst, `"}`...)
}

func appendRange(dst []byte, epoch uint64, p pack.Pack) []byte {
	return fmt.Appendf(dst, `"sluice_first":%d,"sluice_last":%d,"sluice_epoch":"%016x"`, p.First, p.Last, epoch)
}

// quote renders s as a JSON string.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a rendering
	}
	return b
}
