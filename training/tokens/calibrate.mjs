// Counts tokens as the o200k encoding does: a JSON array of texts on standard input, their counts on standard output.
import { text } from "node:stream/consumers";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";

// A text that spells a special token is a text like any other.
const plain = { disallowedSpecial: new Set() };
const texts = JSON.parse(await text(process.stdin));
process.stdout.write(JSON.stringify(texts.map((one) => countTokens(one, plain))));
