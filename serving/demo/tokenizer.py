"""The demo's own byte-level BPE tokenizer and its chat template."""

from collections.abc import Iterable, Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from serving.demo.questions import LANGUAGES, Prompts, Question

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 1536
# Qwen2's own split into words, digits, punctuation and white space: transformers applies it to every
# model of type qwen2, whatever tokenizer.json says.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Every role is rendered the same way; a message without text (a tool call) becomes an empty turn.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{START}{{{{ message.role }}}}\n{{{{ message.content or '' }}}}{END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary of `VOCABULARY` tokens from `texts`; any text can be encoded, byte by byte if need be."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def texts_for_training(questions: Iterable[Question], system: Prompts) -> Iterator[str]:
    """All that a checkpoint may read or write in training; held-out wording is left out."""
    yield from system.trained
    for question in questions:
        for language in LANGUAGES:
            yield from question.prompts[language].trained
            yield from (replies[language] for replies in question.replies.values())


def turn(role: str, text: str) -> str:
    """One complete turn as the chat template renders it."""
    return f"{opening(role)}{text}{END}\n"


def opening(role: str) -> str:
    """The start of a turn, up to where its text begins."""
    return f"{START}{role}\n"
