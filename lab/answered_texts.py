"""Who answers the made calls of ``lab.answered_calls``, and what they say."""

from dataclasses import dataclass
from typing import Final, Literal

Half = Literal["tuned", "held_out"]


@dataclass(frozen=True)
class Speakers:
    """The voices and texts of one half: a voice and what it says."""

    short: tuple[tuple[str, str], ...]
    named: tuple[tuple[str, str], ...]
    company: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, tuple[str, ...]], ...]
    menu: tuple[tuple[str, tuple[str, ...]], ...]


SPEAKERS: Final[dict[Half, Speakers]] = {
    "tuned": Speakers(
        short=(
            ("en-us", "Hello?"),
            ("en-gb", "Yes?"),
            ("cmn", "喂？"),
            ("de", "Hallo?"),
            ("es", "¿Diga?"),
            ("en-us", "Miller."),
            ("de", "Schmidt."),
            ("en-us", "Hello, hello?"),
            ("hibari", "Hello?"),
            ("hibari", "Yeah?"),
            ("hibari", "Hi."),
            ("en-gb-scotland", "Who is this?"),
            ("cmn-latn-pinyin", "wei2?"),
            ("es-419", "¿Bueno?"),
            ("en-us-nyc", "Speaking."),
            ("fr", "Allô?"),
        ),
        named=(
            ("en-us", "Hello, this is Anna speaking."),
            ("de", "Guten Tag, Schmidt am Apparat."),
            ("cmn", "喂，你好，请问哪位？"),
            ("es", "Buenos días, le habla Carmen."),
            ("en-gb", "Good morning, Peter here."),
            ("hibari", "Hi, this is Jane."),
            ("hibari", "Hello, Jane Cooper speaking."),
            ("en-gb-x-rp", "Hello, you are through to Oliver."),
            ("es-419", "Aló, habla Roberto, dígame."),
            ("fr", "Bonjour, c'est Marie à l'appareil."),
        ),
        company=(
            ("en-us", "Good morning, Miller and Sons, Anna speaking."),
            ("en-gb", "Acme support, this is Peter, how can I help you?"),
            ("de", "Guten Tag, Firma Schmidt und Söhne, mein Name ist Weber."),
            ("cmn", "您好，明天公司，请讲。"),
            ("es", "Buenos días, clínica San José, ¿en qué le puedo ayudar?"),
            ("hibari", "Thanks for calling Riverside Dental, this is Jane."),
            ("hibari", "Good afternoon, front desk, how may I help?"),
            ("en-gb-scotland", "Highland Motors, good afternoon, Fiona speaking."),
            ("es-419", "Ferretería Central, muy buenas tardes, habla Roberto."),
            ("fr", "Bonjour, cabinet du docteur Martin, je vous écoute."),
        ),
        machine=(
            (
                "en-us",
                (
                    "Hello, you have reached the voicemail of Anna Miller.",
                    "I cannot take your call right now.",
                    "Please leave your name, your number and a short message after the tone.",
                    "I will call you back as soon as I can.",
                    "Thank you for your call, and have a nice day.",
                ),
            ),
            ("en-gb", ("The person you are calling is not available.", "Please leave a message after the tone.")),
            (
                "de",
                (
                    "Guten Tag, hier ist der Anrufbeantworter von Familie Schmidt.",
                    "Wir sind im Moment leider nicht zu Hause.",
                    "Bitte hinterlassen Sie eine Nachricht nach dem Signalton.",
                    "Wir rufen Sie so bald wie möglich zurück.",
                ),
            ),
            ("cmn", ("您好，您拨打的用户暂时无法接听。", "请在提示音后留言。", "谢谢您的来电。")),
            (
                "es",
                (
                    "Hola, ha llamado al buzón de voz de Carmen López.",
                    "En este momento no puedo atenderle.",
                    "Por favor, deje su mensaje después de la señal.",
                ),
            ),
            (
                "hibari",
                (
                    "Hi, you've reached Jane Cooper at Riverside Dental.",
                    "I'm either on the other line or away from my desk.",
                    "If this is urgent, please call the front desk.",
                    "Otherwise leave me a message and I'll get back to you shortly.",
                    "Thanks, and talk to you soon.",
                ),
            ),
            (
                "hibari",
                (
                    "Your call has been forwarded to an automatic voice message system.",
                    "At the tone, please record your message.",
                ),
            ),
            (
                "en-gb-x-rp",
                (
                    "Sorry, nobody can come to the telephone at the moment.",
                    "Do leave a message, and we shall ring you back.",
                ),
            ),
            (
                "es-419",
                ("El número que usted marcó no está disponible.", "Grabe su mensaje después del tono.", "Gracias."),
            ),
            (
                "fr",
                (
                    "Bonjour, vous êtes bien sur la messagerie de Marie Dupont.",
                    "Je ne suis pas disponible pour le moment.",
                    "Merci de laisser un message après le bip sonore.",
                ),
            ),
        ),
        menu=(
            (
                "en-us",
                (
                    "Thank you for calling Acme Bank.",
                    "For accounts, press one.",
                    "For loans, press two.",
                    "To speak to a person, press zero.",
                ),
            ),
            (
                "de",
                (
                    "Willkommen bei der Sparkasse.",
                    "Für Ihr Konto drücken Sie die Eins.",
                    "Für Kredite drücken Sie die Zwei.",
                ),
            ),
            (
                "hibari",
                (
                    "Welcome to Riverside Dental.",
                    "If this is an emergency, hang up and dial nine one one.",
                    "To book a visit, press one.",
                    "For billing, press two.",
                ),
            ),
            (
                "fr",
                ("Bienvenue chez Télécom Plus.", "Pour la facturation, tapez un.", "Pour un technicien, tapez deux."),
            ),
        ),
    ),
    "held_out": Speakers(
        short=(
            ("hibari", "Hey."),
            ("hibari", "Hello, hello?"),
            ("it", "Pronto?"),
            ("pt-br", "Alô?"),
            ("ja", "もしもし。"),
            ("ru", "Алло?"),
            ("nl", "Met Jan."),
            ("en-029", "Hello? Who is there?"),
            ("en-gb-x-gbcwmd", "Mummy's phone, hello?"),
            ("de", "Ja, bitte?"),
        ),
        named=(
            ("hibari", "This is Daniel, go ahead."),
            ("hibari", "Hi, Daniel here. Who am I speaking with?"),
            ("it", "Buongiorno, sono Lucia, mi dica."),
            ("ru", "Здравствуйте, Елена слушает."),
            ("ja", "はい、たなかです。"),
            ("pt-br", "Oi, aqui é a Beatriz, pode falar."),
            ("nl", "Goedemiddag, u spreekt met Jan de Vries."),
            ("cmn", "你好，我是小李，您哪位？"),
        ),
        company=(
            ("hibari", "Thank you for calling Northwind Supplies, this is Daniel, how may I help you?"),
            ("hibari", "Northwind, sales department, how can I direct your call?"),
            ("it", "Officine Rossi, buongiorno, sono Lucia, come posso aiutarla?"),
            ("ru", "Компания Заря, добрый день, меня зовут Елена."),
            ("ja", "おでんわありがとうございます。やまだしょうじでございます。"),
            ("pt-br", "Padaria Central, bom dia, Beatriz falando."),
            ("nl", "Goedemorgen, garage Van Dijk, met Jan, waarmee kan ik u helpen?"),
            ("en-029", "Good afternoon, Blue Bay Hotel, reception, Marcia speaking."),
        ),
        machine=(
            (
                "hibari",
                (
                    "Hey, it's Daniel.",
                    "I missed your call, so you know what to do.",
                    "Leave your name and number, and I'll call you back tonight.",
                ),
            ),
            (
                "hibari",
                (
                    "The person you are trying to reach is using a call assistant.",
                    "Please say your name, and why you are calling.",
                    "I will see whether this person is available.",
                ),
            ),
            ("hibari", ("We're sorry. The mailbox is full, and cannot accept any messages at this time.", "Goodbye.")),
            (
                "en-029",
                (
                    "You have reached the Blue Bay Hotel.",
                    "Our office is open from nine to five.",
                    "Please leave a message after the beep.",
                ),
            ),
            (
                "de",
                (
                    "Der gewünschte Gesprächspartner ist zurzeit nicht erreichbar.",
                    "Sie können eine Nachricht hinterlassen.",
                ),
            ),
            (
                "fr",
                ("Vous êtes sur le répondeur du zéro six, douze, trente-quatre.", "Laissez un message après le bip."),
            ),
            ("it", ("Risponde la segreteria telefonica.", "Lasciate un messaggio dopo il segnale acustico, grazie.")),
            ("ru", ("Абонент временно недоступен.", "Оставьте сообщение после сигнала.", "Спасибо за звонок.")),
            (
                "ja",
                (
                    "ただいま、でんわにでることができません。",
                    "ぴーというはっしんおんのあとに、おなまえとごようけんをおはなしください。",
                ),
            ),
            (
                "pt-br",
                ("Sua chamada está sendo encaminhada para a caixa de mensagens.", "Deixe o seu recado após o sinal."),
            ),
            (
                "cmn",
                ("您好，这里是语音信箱。", "我现在不方便接听电话。", "请留下您的姓名和电话号码，我会尽快给您回电。"),
            ),
        ),
        menu=(
            (
                "hibari",
                (
                    "Thanks for calling Northwind.",
                    "For orders, press one.",
                    "For returns, press two.",
                    "To hear this again, press star.",
                ),
            ),
            ("it", ("Benvenuti in Banca Rossi.", "Per il saldo, premere uno.", "Per parlare con noi, premere due.")),
        ),
    ),
}
VARIANTS: Final[dict[Half, tuple[str, ...]]] = {
    "tuned": ("", "+m3", "+f2", "+m7", "+f4", "+m1"),
    "held_out": ("", "+f5", "+m5", "+klatt2", "+f3", "+m8"),
}
"""Voices of espeak-ng are spoken with the timbre of other people."""
