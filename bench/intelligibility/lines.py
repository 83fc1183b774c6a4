"""What the voices say: lines of calls without digits, since a recogniser writes numbers in its own way."""

from typing import Final

LINES: Final[dict[str, str]] = {
    "zh": """
您好，这里是客户服务中心。
请问有什么可以帮到您？
您的包裹今天下午会送到家里。
请在提示音之后留下您的姓名和电话。
对不起，您拨打的用户正在通话中。
我们的营业时间是早上九点到晚上六点。
您的预约已经改到下个星期五。
请把身份证和银行卡准备好。
系统正在维护，请稍后再试。
感谢您的耐心等待，马上为您转接。
这张发票会寄到您的邮箱。
您可以在手机上查看订单的状态。
医生今天不在，您愿意换一位吗？
请确认收货地址是否正确。
您的密码已经重新设置好了。
如果需要退货，请保留好包装。
我已经把您的意见记录下来了。
明天有大雨，请带好雨伞。
您乘坐的航班推迟了两个小时。
请到二楼的窗口办理手续。
这款产品目前没有库存。
您的会员资格将在月底到期。
请不要把验证码告诉任何人。
维修师傅会在出发前联系您。
很抱歉给您带来了不便。
您的申请正在审核，请耐心等候。
附近的门店在火车站对面。
请问您是想咨询还是投诉？
我们会在三个工作日之内答复。
水费可以通过网上银行缴纳。
您的座位在靠窗的位置。
请说出您要找的部门名称。
课程从下个月开始报名。
电梯坏了，请走楼梯。
您的贷款申请已经通过了。
请把音量调大一点，我听不清楚。
今天的最后一班车是晚上十点半。
这个问题需要技术人员来处理。
您购买的保险从今天起生效。
房间已经打扫干净，可以入住了。
请按照短信里的步骤操作。
我们没有收到您的付款。
图书馆周末也照常开放。
您的体检报告已经出来了。
请先关闭电源，再打开盖子。
客服代表很快就会接听您的电话。
这次活动只对新用户有效。
您可以选择快递或者到店自取。
请记住您的排队号码。
祝您旅途愉快，再见。
""",
    "es": """
Gracias por llamar al servicio de atención al cliente.
Su pedido llegará mañana por la tarde.
Por favor, espere un momento mientras le atendemos.
No le he oído bien, ¿puede repetirlo?
Esta llamada puede ser grabada para mejorar el servicio.
Diga el nombre de la persona con la que quiere hablar.
Nuestra oficina está cerrada los domingos.
Hemos enviado la factura a su correo electrónico.
Su cita con el médico ha cambiado de hora.
No comparta su contraseña con nadie.
El técnico le llamará antes de salir.
Todos nuestros agentes están ocupados.
Puede pagar con tarjeta o en efectivo.
La reparación está incluida en la garantía.
Lamentamos las molestias que le hemos causado.
Su solicitud ha sido aprobada.
El vuelo sale con dos horas de retraso.
Deje su mensaje después de la señal.
La tienda más cercana está frente a la estación.
Que tenga un buen día y hasta pronto.
""",
    "fr": """
Merci d'avoir appelé le service client.
Votre commande arrivera demain après-midi.
Veuillez patienter, un conseiller va vous répondre.
Je n'ai pas bien entendu, pouvez-vous répéter ?
Cet appel peut être enregistré.
Dites le nom de la personne que vous cherchez.
Nos bureaux sont fermés le dimanche.
La facture a été envoyée à votre adresse.
Votre rendez-vous chez le médecin a été déplacé.
Ne donnez votre mot de passe à personne.
Le technicien vous appellera avant de partir.
Tous nos conseillers sont en ligne.
Vous pouvez payer par carte ou en espèces.
La réparation est comprise dans la garantie.
Nous sommes désolés pour la gêne occasionnée.
Votre demande a été acceptée.
Le train partira avec une heure de retard.
Laissez votre message après le signal sonore.
Le magasin le plus proche est en face de la gare.
Bonne journée et à bientôt.
""",
    "it": """
Grazie per aver chiamato il servizio clienti.
Il suo ordine arriverà domani pomeriggio.
Attenda in linea, un operatore le risponderà presto.
Non ho sentito bene, può ripetere per favore?
Questa chiamata può essere registrata.
Dica il nome della persona che sta cercando.
I nostri uffici sono chiusi la domenica.
Abbiamo inviato la fattura al suo indirizzo.
Il suo appuntamento con il medico è stato spostato.
Non comunichi a nessuno la sua password.
Il tecnico la chiamerà prima di partire.
Tutti i nostri operatori sono occupati.
Può pagare con la carta o in contanti.
La riparazione è compresa nella garanzia.
Ci scusiamo per il disagio.
La sua richiesta è stata accettata.
Il treno partirà con un'ora di ritardo.
Lasci un messaggio dopo il segnale acustico.
Il negozio più vicino è di fronte alla stazione.
Buona giornata e a presto.
""",
    "pt": """
Obrigado por ligar para o serviço de atendimento.
O seu pedido vai chegar amanhã à tarde.
Aguarde na linha, um atendente vai falar com você.
Não ouvi bem, você pode repetir?
Esta ligação pode ser gravada.
Diga o nome da pessoa com quem quer falar.
Nosso escritório fica fechado aos domingos.
Enviamos a fatura para o seu endereço.
A sua consulta com o médico mudou de horário.
Não conte a sua senha para ninguém.
O técnico vai ligar antes de sair.
Todos os nossos atendentes estão ocupados.
Você pode pagar com cartão ou em dinheiro.
O conserto está incluído na garantia.
Pedimos desculpas pelo transtorno.
O seu pedido de crédito foi aprovado.
O voo vai sair com duas horas de atraso.
Deixe a sua mensagem depois do sinal.
A loja mais próxima fica em frente à estação.
Tenha um bom dia e até logo.
""",
}


def lines_of(language: str) -> list[str]:
    """The lines of a language, by its primary subtag."""
    return LINES[language].strip().splitlines()
